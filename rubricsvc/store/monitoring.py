"""Counts for monitoring."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from rubricsvc.store import workers
from rubricsvc.store.tables import LEASED, PENDING, ItemRow, JudgeRow, OutboxRow, VerdictRow


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
    return Queue(items, messages, workers.running(session))


def verdicts(session: Session) -> dict[str, int]:
    """Count verdicts by outcome. This reads the whole table."""
    counted = select(VerdictRow.outcome, func.count()).group_by(VerdictRow.outcome)
    return {"scored": 0, "abstained": 0, "failed": 0, **dict(session.execute(counted).all())}
