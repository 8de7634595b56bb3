"""Evolutions of rubrics, and the versions that their steps use.

The versions that a training run writes for a prompt have one name: its lineage. In use is the version of the newest
selection: an approval by a person, or the run's own event on an approved version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.evolution import BufferedCriterion, EvolutionRound, HeldOutResult
from rubricsvc.core.states import APPROVED
from rubricsvc.store.base import find, get_or_add, missing, page_of, utcnow
from rubricsvc.store.tables import EvolutionRow, EvolutionStepRow, JobRow, RubricEventRow, RubricRow

_WITH = [joinedload(EvolutionRow.rubric), joinedload(EvolutionRow.judge)]


class VersionUse(NamedTuple):
    """The rubric version in use, and the review event that decided it; 0 for the start."""

    rubric_id: int
    event_id: int = 0


def add(session: Session, key: str, **columns: Any) -> EvolutionRow:
    """Add an evolution, or return that of the same ``key``."""
    return get_or_add(session, EvolutionRow, {"key": key}, **columns)[0]


def get(session: Session, evolution_id: int | str) -> EvolutionRow:
    """Return the row."""
    row = find(session, EvolutionRow, evolution_id, _WITH)
    if row is None:
        raise missing("evolution", evolution_id, "list them with `rubricsvc evolve show` or GET /v1/evolutions")
    return row


def page(session: Session, *, after: int = 0, limit: int = 50, **columns: object) -> list[EvolutionRow]:
    """Return up to ``limit`` evolutions with ids above ``after`` and these ``columns``, ascending."""
    return page_of(session, EvolutionRow, after, limit, options=_WITH, **columns)


def lineage(row: EvolutionRow) -> str:
    """Return the name of the versions that a run writes for a prompt; on labels that of the candidates."""
    if row.run is None:
        return f"evolution-{row.id}"
    suffix = f"-{row.run}" if row.rubric.prompt_id == row.prompt_id else f"-{row.run}-{row.prompt_id}"
    return row.rubric.name[: MAX_NAME_LENGTH - len(suffix)].rstrip() + suffix


def authored(session: Session, digest: str, prompt_id: int) -> RubricRow | None:
    """Return the stored version with this content: that of the prompt before others, approved ones before drafts."""
    rows = session.scalars(select(RubricRow).where(RubricRow.digest == digest).order_by(RubricRow.id)).all()
    return min(rows, key=lambda row: (row.prompt_id != prompt_id, row.state != APPROVED), default=None)


def of_run(session: Session, run: str, prompt_id: int, digest: str) -> EvolutionRow | None:
    """Return the evolution in which the run has used this authored content for a prompt."""
    query = select(EvolutionRow).join(EvolutionRow.rubric).where(RubricRow.digest == digest)
    return session.scalars(query.filter(EvolutionRow.run == run, EvolutionRow.prompt_id == prompt_id)).first()


def steps(session: Session, evolution_id: int) -> list[EvolutionStepRow]:
    """Return the steps, in order."""
    query = select(EvolutionStepRow).filter_by(evolution_id=evolution_id)
    return list(session.scalars(query.order_by(EvolutionStepRow.step)))


def step(session: Session, evolution_id: int, number: int) -> EvolutionStepRow | None:
    """Return what is recorded of a step."""
    return session.scalars(select(EvolutionStepRow).filter_by(evolution_id=evolution_id, step=number)).first()


def begin_step(session: Session, evolution_id: int, number: int, use: VersionUse) -> EvolutionStepRow:
    """Record the version that a step uses; what is recorded already stays."""
    key = {"evolution_id": evolution_id, "step": number}
    return get_or_add(session, EvolutionStepRow, key, **use._asdict())[0]


def newest_entries(session: Session, evolution_id: int) -> list[BufferedCriterion]:
    """Return the buffer after the newest round; empty before the first."""
    query = select(EvolutionStepRow).where(EvolutionStepRow.round.is_not(None))
    query = query.filter_by(evolution_id=evolution_id).order_by(EvolutionStepRow.step.desc())
    row = session.scalars(query.limit(1)).first()
    return row.buffer if row is not None else []


def write_entries(session: Session, row: EvolutionStepRow, entries: Iterable[BufferedCriterion]) -> None:
    """Store the buffer of a round."""
    row.entries = [one.model_dump(mode="json") for one in entries]
    session.flush()


def end_round(
    session: Session,
    row: EvolutionStepRow,
    entries: Iterable[BufferedCriterion],
    done: EvolutionRound,
    target_id: int | None,
) -> None:
    """Record the round that followed a step."""
    row.round, row.target_id = done.model_dump(mode="json"), target_id
    write_entries(session, row, entries)


def finish(session: Session, evolution_id: int, result: HeldOutResult) -> None:
    """End an evolution on labels."""
    row = get(session, evolution_id)
    row.result, row.finished_at = result.model_dump(mode="json"), utcnow()


def proposal_costs(session: Session, **columns: object) -> float:
    """Return the US dollars that proposals have cost in the evolutions with these ``columns``."""
    cost = func.sum(EvolutionStepRow.round["cost"].as_float())
    query = select(cost).join(EvolutionStepRow.evolution).filter_by(**columns)
    return float(session.scalar(query) or 0.0)


def newest_target(session: Session, evolution_id: int) -> RubricRow | None:
    """Return the version that the newest round with a change has written."""
    query = select(RubricRow).join(EvolutionStepRow, EvolutionStepRow.target_id == RubricRow.id)
    query = query.where(EvolutionStepRow.evolution_id == evolution_id).order_by(EvolutionStepRow.step.desc())
    return session.scalars(query.limit(1)).first()


def newest_selection(session: Session, name: str, run: str, after: int) -> VersionUse | None:
    """Return the newest selection of a version of the name ``name`` whose event is after ``after``, if there is one."""
    event = RubricEventRow
    chosen = (event.from_state != event.to_state) | (event.by == run)
    query = select(event.rubric_id, event.id).join(RubricRow, RubricRow.id == event.rubric_id)
    query = query.where(RubricRow.name == name, event.id > after, event.to_state == APPROVED, chosen)
    found = session.execute(query.order_by(event.id.desc()).limit(1)).first()
    return VersionUse(*found) if found is not None else None


def waiting(session: Session, run: str, states: Sequence[str]) -> list[RubricRow]:
    """Return the versions that a run has written and that have one of these states, oldest first."""
    targets = select(EvolutionStepRow.target_id).join(EvolutionStepRow.evolution).where(EvolutionRow.run == run)
    query = select(RubricRow).where(RubricRow.id.in_(targets), RubricRow.state.in_(states))
    return list(session.scalars(query.order_by(RubricRow.id)))


def job_key(evolution_id: int, what: str) -> str:
    """Return the idempotency key of a job of an evolution."""
    return f"evolution-{evolution_id}-{what}"


def jobs_of(session: Session, evolution_id: int) -> list[JobRow]:
    """Return the jobs of an evolution, in order."""
    query = select(JobRow).where(JobRow.key.startswith(job_key(evolution_id, "")))
    return list(session.scalars(query.order_by(JobRow.id)))
