"""Evolutions of rubrics and their candidates.

A process that works on an evolution `take`s it and gets a fence; what another process has taken since is not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.evolution import Candidate, EvolutionSettings, EvolutionStatus, HeldOutResult, PartCounts
from rubricsvc.errors import ConflictError
from rubricsvc.store import items
from rubricsvc.store.base import find, get_or_add, missing, page_of, utcnow
from rubricsvc.store.tables import CandidateRow, EvolutionRow, JobRow

RUNNING, STOPPED, BUDGET_EXHAUSTED, COMPLETED = "running", "stopped", "budget_exhausted", "completed"
REASON_CHARS = 300
_WITH = [joinedload(EvolutionRow.rubric), joinedload(EvolutionRow.judge)]


def add(
    session: Session,
    key: str,
    *,
    rubric_id: int,
    judge_id: int,
    settings: EvolutionSettings,
    budget: float | None,
    parts: PartCounts,
    data_digest: str,
) -> tuple[EvolutionRow, bool]:
    """Add an evolution, or return that of the same ``key``; and whether it is new."""
    return get_or_add(
        session,
        EvolutionRow,
        {"key": key},
        rubric_id=rubric_id,
        judge_id=judge_id,
        settings=settings.model_dump(mode="json", exclude_none=True),
        budget=budget,
        parts=parts.model_dump(mode="json"),
        data_digest=data_digest,
        status=STOPPED,
    )


def get(session: Session, evolution_id: int | str) -> EvolutionRow:
    """Return the row.

    Raises:
        NotFoundError: There is none.
    """
    row = find(session, EvolutionRow, evolution_id, _WITH)
    if row is None:
        raise missing("evolution", evolution_id, "list them with `rubricsvc evolve list` or GET /v1/evolutions")
    return row


def page(session: Session, *, after: int = 0, limit: int = 50) -> list[EvolutionRow]:
    """Return up to ``limit`` evolutions with ids above ``after``, ascending."""
    return page_of(session, EvolutionRow, after, limit, options=_WITH)


def take(session: Session, evolution_id: int, *, budget: float | None = None) -> int:
    """Begin or continue work on an evolution; return the fence. ``budget`` replaces the earlier limit, if given."""
    row = get(session, evolution_id)
    row.fence, row.status, row.updated_at, row.finished_at = row.fence + 1, RUNNING, utcnow(), None
    if budget is not None:
        row.budget = budget
    session.flush()
    return row.fence


def check(session: Session, evolution_id: int, fence: int) -> None:
    """Note that work goes on.

    Raises:
        ConflictError: The evolution was stopped, or another process has continued it.
    """
    where = (EvolutionRow.id == evolution_id, EvolutionRow.fence == fence)
    touched = session.execute(update(EvolutionRow).where(*where).values(updated_at=utcnow()).returning(EvolutionRow.id))
    if touched.first() is None:
        raise ConflictError(
            f"evolution {evolution_id} was stopped, or is continued by another process",
            hint=f"continue here: `rubricsvc evolve start --resume {evolution_id}`",
        )


def stop(session: Session, evolution_id: int) -> EvolutionRow:
    """Stop an evolution that is not finished: the process that works on it ends at its next step."""
    row = get(session, evolution_id)
    if row.status == RUNNING:
        row.status, row.fence, row.updated_at = STOPPED, row.fence + 1, utcnow()
        session.flush()
    return row


def finish(
    session: Session,
    evolution_id: int,
    fence: int,
    status: EvolutionStatus,
    *,
    best: int | None = None,
    result: HeldOutResult | None = None,
) -> None:
    """End an evolution.

    Raises:
        ConflictError: Another process has continued it.
    """
    check(session, evolution_id, fence)
    found = result.model_dump(mode="json") if result is not None else None
    values = {"status": status, "finished_at": utcnow(), "best": best, "result": found}
    session.execute(update(EvolutionRow).where(EvolutionRow.id == evolution_id).values(**values))


def add_candidate(
    session: Session,
    evolution_id: int,
    number: int,
    candidate: Candidate | None,
    *,
    generation: int,
    island: int,
    operator: str,
    parents: Sequence[int],
    reason: str | None = None,
) -> CandidateRow:
    """Add a candidate, or return that of the same number. Without content it has a ``reason``."""
    row, _ = get_or_add(
        session,
        CandidateRow,
        {"evolution_id": evolution_id, "number": number},
        generation=generation,
        island=island,
        operator=operator,
        parents=list(parents),
        content=candidate.model_dump(mode="json", exclude_none=True) if candidate is not None else None,
        reason=reason[:REASON_CHARS] if reason else None,
    )
    return row


def record(session: Session, evolution_id: int, number: int, **values: Any) -> None:
    """Change columns of a candidate."""
    where = (CandidateRow.evolution_id == evolution_id, CandidateRow.number == number)
    session.execute(update(CandidateRow).where(*where).values(**values))


def candidates(session: Session, evolution_id: int) -> list[CandidateRow]:
    """Return the candidates, by id."""
    query: Select[CandidateRow] = select(CandidateRow).where(CandidateRow.evolution_id == evolution_id)
    return list(session.scalars(query.order_by(CandidateRow.id)))


def job_key(evolution_id: int, step: str) -> str:
    """Return the idempotency key of a job of an evolution."""
    return f"evolution-{evolution_id}-{step}"


def jobs_of(session: Session, evolution_id: int) -> list[JobRow]:
    """Return the jobs of an evolution, in order."""
    query = select(JobRow).where(JobRow.key.startswith(job_key(evolution_id, "")))
    return list(session.scalars(query.order_by(JobRow.id)))


def spent(session: Session, evolution_id: int) -> float:
    """Return the US dollars that the judge's jobs and the proposer's replies have cost."""
    of_jobs = sum(job.spent for job in jobs_of(session, evolution_id))
    proposed = items.known_replies(session, items.OF_EVOLUTION, evolution_id).values()
    return of_jobs + sum((reply.get("usage") or {}).get("cost") or 0.0 for reply in proposed)
