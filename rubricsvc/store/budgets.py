"""The budgets of jobs and what they have spent, in US dollars.

Before its calls a worker reserves their maximum cost under the lock of the job's row; afterwards it writes their actual
cost. So spent and reserved money together never exceed the budget, however many workers share a job. All that a killed
worker had reserved counts as spent, because its calls under way are unknown. If the worker was only silent, its next
write corrects the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from rubricsvc.core.jobs import ReservedBudget
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from rubricsvc.store.session import existing
from rubricsvc.store.tables import CANCELLED, LEASED, PENDING, ItemRow, JobRow, ReservationRow

_ROUNDING = 1e-9
"""Dollars below which a sum is a rounding error."""

_SHARE = 0.25
"""Maximum share of the free money that one worker reserves ahead, so that other workers find some."""

_EXHAUSTED = "budget: used up before this item was started; continue with `rubricsvc jobs retry ID --budget USD`"


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a request for money.

    Attributes:
        granted: Dollars that are reserved now.
        may_return: Whether calls under way may still release some.
        exhausted: Whether the job is over its budget.
    """

    granted: float = 0.0
    may_return: bool = False
    exhausted: bool = False


def check(judge: Judge, budget: float | None, *, least: float = 0.0) -> None:
    """Check that a job of this judge can be held to ``budget``."""
    if budget is None:
        return
    if not least < budget < 1e9:
        committed = f"; ${least:.4g} are spent or reserved" if least else ""
        raise InvalidError(
            f"budget {budget:g} is not above {least:.4g} US dollars{committed}", hint="give a larger one"
        )
    if judge.unpriced:
        names = ", ".join(judge.unpriced)
        hint = "set endpoint.price in a judge file and add it: `judges show NAME --yaml`, then `judges add -f`"
        raise InvalidError(f"unknown price: {names}", hint=hint)


def capped(session: Session, job_ids: Iterable[int]) -> dict[int, bool]:
    """Return whether each of these jobs has a budget."""
    rows = session.execute(select(JobRow.id, JobRow.budget).where(JobRow.id.in_(set(job_ids))))
    return {job_id: budget is not None for job_id, budget in rows}


def reserve(
    session: Session, job_id: int, worker: str, *, spent: float, held: float, least: float = 0.0, most: float = 0.0
) -> Grant:
    """Write what a worker has spent and holds, and reserve money for its next calls.

    ``spent`` is since the worker last wrote, and ``held`` what its calls under way need. On top, ``least`` is reserved
    or nothing, and up to ``most`` if that leaves enough for other workers. All in US dollars.
    """
    job = existing(session, JobRow, "job", job_id, lock=True)
    query = select(ReservationRow).where(ReservationRow.job_id == job_id)
    rows = session.scalars(query.where(or_(~ReservationRow.lost, ReservationRow.worker == worker)))
    others = {row.worker: row for row in rows}
    mine = others.pop(worker, None)
    job.spent += spent - (mine.dollars if mine is not None and mine.lost else 0.0)
    theirs = sum(row.dollars for row in others.values())
    free = math.inf if job.budget is None else job.budget - job.spent - theirs - held
    granted = max(least, min(most, _SHARE * free)) if free >= least and not job.exhausted else 0.0
    mine = mine or ReservationRow(job_id=job_id, worker=worker)
    mine.dollars, mine.lost = held + granted, False
    if mine.dollars > _ROUNDING:
        session.add(mine)
    elif mine in session:
        session.delete(mine)
    return Grant(granted, theirs + held > _ROUNDING, job.exhausted)


_LEASE = (ItemRow.job_id == ReservationRow.job_id, ItemRow.worker == ReservationRow.worker, ItemRow.state == LEASED)
_ORPHANED = ~ReservationRow.lost & ~select(ItemRow.id).where(*_LEASE).exists()
"""Matches reservations whose worker holds no lease of the job, so that it has no call under way: it was killed."""


def orphaned_jobs(session: Session) -> list[int]:
    """Return the jobs with reservations of workers that hold no lease of them, because they were killed."""
    return list(session.scalars(select(ReservationRow.job_id).where(_ORPHANED).distinct()))


def write_off(session: Session, job_id: int) -> float:
    """Count the reservations of workers that hold no lease of this job as spent; return the dollars."""
    job = existing(session, JobRow, "job", job_id, lock=True)
    rows = session.scalars(select(ReservationRow).where(ReservationRow.job_id == job_id, _ORPHANED)).all()
    for row in rows:
        row.lost = True
    lost = sum(row.dollars for row in rows)
    job.spent += lost
    return lost


def reserved_totals(session: Session, job_id: int) -> ReservedBudget:
    """Return what workers hold of the job's budget, and what was lost with killed ones."""
    total = func.sum(ReservationRow.dollars)
    query = select(ReservationRow.lost, total).where(ReservationRow.job_id == job_id).group_by(ReservationRow.lost)
    sums: dict[bool, float] = dict(session.execute(query).all())
    return ReservedBudget(held=sums.get(False, 0.0), lost=sums.get(True, 0.0))


def exhaust(session: Session, job_id: int) -> None:
    """Start nothing more of this job: pending items are cancelled, items under way end."""
    session.execute(update(JobRow).where(JobRow.id == job_id).values(exhausted=True))  # locks it before its items
    session.execute(
        update(ItemRow)
        .where(ItemRow.job_id == job_id, ItemRow.state == PENDING)
        .values(state=CANCELLED, null_reason=_EXHAUSTED, fence=ItemRow.fence + 1)
    )
