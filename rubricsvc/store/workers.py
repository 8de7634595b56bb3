"""Running workers. Each one reports every `REPORT_SECONDS`; one that is killed leaves its row behind.

All times are by the clock of the leases, so that the clocks of the workers' machines do not matter. Any worker of a
database scores any job of it: the message that wakes it may be lost, but its reconciler finds the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from rubricsvc.store.base import database_time, insert
from rubricsvc.store.tables import LEASED, PENDING, ItemRow, JudgeRow, OutboxRow, VerdictRow, WorkerRow

REPORT_SECONDS = 10.0
MISSED_REPORTS = 3
"""A worker that missed so many reports does not count as running."""
KEPT_SECONDS = 3600.0
"""How long the row of a killed worker is kept, and listed."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker and the seconds since it started and since it was last seen."""

    name: str
    host: str
    pid: int
    started: float
    seen: float

    @property
    def running(self) -> bool:
        """Whether it has reported lately."""
        return self.seen <= REPORT_SECONDS * MISSED_REPORTS


def report(session: Session, name: str, *, host: str, pid: int, uptime: float) -> None:
    """Report that a worker runs, for ``uptime`` seconds so far."""
    now = database_time(session)
    row = {"name": name, "host": host, "pid": pid, "started_at": now - uptime, "seen_at": now}
    added = insert(session, WorkerRow).values(**row)
    session.execute(added.on_conflict_do_update(index_elements=["name"], set_={"seen_at": now}))


def remove(session: Session, name: str) -> None:
    """Remove a worker that stops."""
    session.execute(delete(WorkerRow).where(WorkerRow.name == name))


def remove_lost(session: Session) -> None:
    """Remove the workers that were last seen more than `KEPT_SECONDS` ago."""
    old = WorkerRow.seen_at < database_time(session) - KEPT_SECONDS
    # those that another transaction removes are skipped: waiting for it could be a deadlock
    names = list(session.scalars(select(WorkerRow.name).where(old).with_for_update(skip_locked=True)))
    session.execute(delete(WorkerRow).where(WorkerRow.name.in_(names)))


def page(session: Session) -> Sequence[Worker]:
    """Return all workers, in the order in which they started."""
    now = database_time(session)
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.started_at, WorkerRow.name))
    return [Worker(row.name, row.host, row.pid, now - row.started_at, now - row.seen_at) for row in rows]


def running(session: Session) -> int:
    """Return the number of running workers."""
    return session.scalar(select(func.count()).select_from(WorkerRow).where(_is_running(session))) or 0


def _is_running(session: Session) -> ColumnElement[bool]:
    return WorkerRow.seen_at >= database_time(session) - REPORT_SECONDS * MISSED_REPORTS


@dataclass(frozen=True, slots=True)
class Queue:
    """Open items by (judge name, state), messages in the ``outbox``, and running ``workers``."""

    items: dict[tuple[str, str], int]
    outbox: int
    workers: int

    @property
    def pending(self) -> int:
        """Items that wait for a worker, of all judges."""
        return sum(count for (_, state), count in self.items.items() if state == PENDING)


def queue(session: Session) -> Queue:
    """Count open items in an index. Every judge is listed with both open states, also with 0."""
    names = dict(session.execute(select(JudgeRow.id, JudgeRow.name)).all())
    items = {(name, state): 0 for name in names.values() for state in (PENDING, LEASED)}
    open_items = (
        select(ItemRow.judge_id, ItemRow.state, func.count())
        .where(ItemRow.judge_id.in_(select(JudgeRow.id)), ItemRow.state.in_((PENDING, LEASED)))
        .group_by(ItemRow.judge_id, ItemRow.state)
    )
    for judge_id, state, count in session.execute(open_items):
        items[names.get(judge_id, str(judge_id)), state] = count  # a judge may have come since
    messages = session.scalar(select(func.count()).select_from(OutboxRow)) or 0
    return Queue(items, messages, running(session))


def verdict_counts(session: Session) -> dict[str, int]:
    """Count verdicts by outcome. This reads the whole table."""
    counted = select(VerdictRow.outcome, func.count()).group_by(VerdictRow.outcome)
    return {"scored": 0, "abstained": 0, "failed": 0, **dict(session.execute(counted).all())}
