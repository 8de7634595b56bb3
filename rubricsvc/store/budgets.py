"""What a job may spend and has spent, in US dollars.

A worker reserves, under the lock of the job's row, what its calls may cost before it makes them, and writes what they
came to after. So the caps hold however many work on a job: what is spent and what is reserved never pass the budget.
Nobody knows which calls a killed worker had under way: all that it had reserved counts as spent. Where it was not
dead after all, its next write puts that right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from rubricsvc.store.tables import CANCELLED, LEASED, PENDING, ItemRow, JobRow, ReservationRow

_DUST = 1e-9
"""Dollars that rounding may leave."""

_SHARE = 0.25
"""Of what is free, at most this much is reserved at a time for further calls, so that others find some too."""

_EXHAUSTED = "budget: the job's cap was reached before this was begun; `jobs retry --budget` goes on"


@dataclass(frozen=True, slots=True)
class Reservation:
    """``granted`` dollars are reserved. Where it is 0, ``returns`` says whether calls under way may give some back."""

    granted: float = 0.0
    returns: bool = False
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class Reserved:
    """Dollars of a job: ``held`` by workers for calls under way, and ``lost`` with killed ones (counted as spent)."""

    held: float = 0.0
    lost: float = 0.0


def check(judge: Judge, budget: float | None, *, least: float = 0.0) -> None:
    """See that a job of this judge can be held to ``budget``.

    Raises:
        InvalidError: it is no more than ``least``, or a judge's price is not known.
    """
    if budget is None:
        return
    if not least < budget < 1e9:
        more = f", and ${least:.4g} are spent or reserved for calls under way" if least else ""
        raise InvalidError(f"a budget is US dollars above 0{more}; this is {budget:g}", hint="give a larger one")
    if judge.unpriced:
        names = ", ".join(judge.unpriced)
        hint = "set endpoint.price in a judge file and add it: `judges show NAME --yaml`, then `judges add -f`"
        raise InvalidError(f"no price is known for {names}: nothing says what a job costs", hint=hint)


def capped(session: Session, job_ids: Iterable[int]) -> dict[int, bool]:
    """Whether each of these jobs has a budget."""
    rows = session.execute(select(JobRow.id, JobRow.budget).where(JobRow.id.in_(set(job_ids))))
    return {job_id: budget is not None for job_id, budget in rows}


def book(
    session: Session, job_id: int, worker: str, *, spent: float, held: float, least: float = 0.0, most: float = 0.0
) -> Reservation:
    """``worker`` has ``spent`` so much since it last wrote, and still needs ``held`` for its calls under way.

    On top of these ``least`` is reserved, if there is so much, and up to ``most`` where that leaves enough for others.
    """
    job = _locked(session, job_id)
    query = select(ReservationRow).where(ReservationRow.job_id == job_id)
    rows = session.scalars(query.where(or_(~ReservationRow.lost, ReservationRow.worker == worker)))
    others = {row.worker: row for row in rows}
    mine = others.pop(worker, None)
    job.spent += spent - (mine.dollars if mine is not None and mine.lost else 0.0)
    theirs = sum(row.dollars for row in others.values())
    free = math.inf if job.budget is None else job.budget - job.spent - theirs - held
    granted = max(least, min(most, _SHARE * free)) if free >= least and not job.exhausted else 0.0
    _hold(session, mine or ReservationRow(job_id=job_id, worker=worker), held + granted)
    return Reservation(granted, theirs + held > _DUST, job.exhausted)


def _locked(session: Session, job_id: int) -> JobRow:
    """The job as it stands; nobody else writes to it or its reservations before the transaction ends."""
    query = select(JobRow).where(JobRow.id == job_id).with_for_update()
    return session.scalars(query, execution_options={"populate_existing": True}).one()


def _hold(session: Session, row: ReservationRow, dollars: float) -> None:
    row.dollars, row.lost = dollars, False
    if dollars > _DUST:
        session.add(row)
    elif row in session:
        session.delete(row)


def _orphaned() -> ColumnElement[bool]:
    """Of a reservation: its worker holds no lease of the job (any more), so that no call of it can be under way."""
    lease = select(ItemRow.id).where(
        ItemRow.job_id == ReservationRow.job_id, ItemRow.state == LEASED, ItemRow.worker == ReservationRow.worker
    )
    return ~ReservationRow.lost & ~lease.exists()


def orphaned(session: Session) -> list[int]:
    """Jobs with money that was reserved by workers who hold no lease of them: they were killed."""
    return list(session.scalars(select(ReservationRow.job_id).where(_orphaned()).distinct()))


def close(session: Session, job_id: int) -> float:
    """Count as spent what was reserved by workers who hold no lease of this job; how many dollars."""
    job = _locked(session, job_id)
    rows = session.scalars(select(ReservationRow).where(ReservationRow.job_id == job_id, _orphaned())).all()
    for row in rows:
        row.lost = True
    lost = sum(row.dollars for row in rows)
    job.spent += lost
    return lost


def reserved(session: Session, job_id: int) -> Reserved:
    """What of the job's budget workers hold, and what was lost."""
    total = func.sum(ReservationRow.dollars)
    query = select(ReservationRow.lost, total).where(ReservationRow.job_id == job_id).group_by(ReservationRow.lost)
    sums: dict[bool, float] = dict(session.execute(query).all())
    return Reserved(held=sums.get(False, 0.0), lost=sums.get(True, 0.0))


def exhaust(session: Session, job_id: int) -> None:
    """Begin nothing more of this job: what nobody has begun is cancelled, and what is under way ends as it can."""
    session.execute(update(JobRow).where(JobRow.id == job_id).values(exhausted=True))  # locks it before its items
    session.execute(
        update(ItemRow)
        .where(ItemRow.job_id == job_id, ItemRow.state == PENDING)
        .values(state=CANCELLED, null_reason=_EXHAUSTED, fence=ItemRow.fence + 1)
    )


def reopen(session: Session, job: JobRow, budget: float | None) -> None:
    """Let a job that is retried spend up to ``budget``; unset, what it could before. Its row must be locked.

    Raises:
        InvalidError: its budget is used up, or the new one is no larger than what is spent and reserved.
    """
    close(session, job.id)
    check(job.judge.value, budget, least=job.spent + reserved(session, job.id).held)
    if job.exhausted and budget is None:
        raise InvalidError(
            f"job {job.id} has spent ${job.spent:.4g} of its budget of ${job.budget:.4g}",
            hint=f"give it more: rubricsvc jobs retry {job.id} --budget {2 * (job.budget or 0):g}",
        )
    job.budget, job.exhausted = job.budget if budget is None else budget, False
