"""Buffers of criteria that are proposed while a policy trains, and the rubric versions that its steps use.

A ``BufferKey`` is a prompt with its authored rubric in one run. The versions that the run writes for it have one name:
its lineage. In use is the version of the newest selection: an approval by a person, or the run's own event on an
approved version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.criterion_buffer import BufferedCriterion, EvolutionRound
from rubricsvc.core.states import APPROVED
from rubricsvc.store.base import get_or_add
from rubricsvc.store.tables import BufferedCriterionRow, RubricEventRow, RubricRow, RunStepRow


class BufferKey(NamedTuple):
    """A prompt and its authored rubric, in one run."""

    run: str
    prompt_id: int
    base_id: int


class VersionUse(NamedTuple):
    """The rubric version in use, and the review event that decided it; 0 for the authored version."""

    rubric_id: int
    event_id: int = 0


def lineage(place: BufferKey, base: RubricRow) -> str:
    """Return the name of the versions that a run writes for a prompt."""
    suffix = f"-{place.run}" if base.prompt_id == place.prompt_id else f"-{place.run}-{place.prompt_id}"
    return base.name[: MAX_NAME_LENGTH - len(suffix)].rstrip() + suffix


def authored(session: Session, digest: str, prompt_id: int) -> RubricRow | None:
    """Return the stored version with this content: that of the prompt before others, approved ones before drafts."""
    rows = session.scalars(select(RubricRow).where(RubricRow.digest == digest).order_by(RubricRow.id)).all()
    return min(rows, key=lambda row: (row.prompt_id != prompt_id, row.state != APPROVED), default=None)


def used_base(session: Session, run: str, prompt_id: int, digest: str) -> RubricRow | None:
    """Return the authored version with this content that the run has used for a prompt before."""
    query = select(RubricRow).join(RunStepRow, RunStepRow.base_id == RubricRow.id)
    query = query.where(RunStepRow.run == run, RunStepRow.prompt_id == prompt_id, RubricRow.digest == digest)
    return session.scalars(query.limit(1)).first()


def entries(session: Session, place: BufferKey) -> list[BufferedCriterion]:
    """Return the buffer of a prompt, oldest first; empty before its first round."""
    return [row.value for row in session.scalars(_entries(place).order_by(BufferedCriterionRow.id))]


def write_entries(session: Session, place: BufferKey, values: Iterable[BufferedCriterion]) -> None:
    """Store new entries, and replace those whose value has changed."""
    rows = {row.key: row for row in session.scalars(_entries(place))}
    for value in values:
        content = value.model_dump(mode="json")
        if (row := rows.get(value.key)) is None:
            session.add(BufferedCriterionRow(**place._asdict(), key=value.key, state=value.state, content=content))
        elif row.content != content:
            row.state, row.content = value.state, content
    session.flush()


def _entries(place: BufferKey) -> Select[BufferedCriterionRow]:
    return select(BufferedCriterionRow).filter_by(**place._asdict())


def of_prompt(session: Session, prompt_id: int, run: str | None = None) -> list[BufferedCriterionRow]:
    """Return the entries of a prompt in all runs, or in one, oldest first."""
    query = select(BufferedCriterionRow).where(BufferedCriterionRow.prompt_id == prompt_id)
    if run is not None:
        query = query.where(BufferedCriterionRow.run == run)
    return list(session.scalars(query.order_by(BufferedCriterionRow.id)))


def rounds(session: Session, prompt_id: int, run: str | None = None) -> list[RunStepRow]:
    """Return the steps with a round of a prompt in all runs, or in one, oldest first."""
    query = select(RunStepRow).where(RunStepRow.prompt_id == prompt_id, RunStepRow.round.is_not(None))
    if run is not None:
        query = query.where(RunStepRow.run == run)
    return list(session.scalars(query.order_by(RunStepRow.id)))


def step(session: Session, place: BufferKey, number: int) -> RunStepRow | None:
    """Return what is recorded of a step."""
    return session.scalars(select(RunStepRow).filter_by(**place._asdict(), step=number)).first()


def begin_step(session: Session, place: BufferKey, number: int, use: VersionUse) -> RunStepRow:
    """Record the version that a step uses; what is recorded already stays."""
    row, _ = get_or_add(session, RunStepRow, {**place._asdict(), "step": number}, **use._asdict())
    return row


def end_round(session: Session, row: RunStepRow, done: EvolutionRound, target_id: int | None) -> None:
    """Record the round that followed a step."""
    row.round, row.target_id = done.model_dump(mode="json"), target_id
    session.flush()


def spent(session: Session, run: str) -> float:
    """Return the US dollars that the proposals of a run have cost."""
    cost = RunStepRow.round["cost"].as_float()
    return float(session.scalar(select(func.sum(cost)).where(RunStepRow.run == run)) or 0.0)


def newest_target(session: Session, place: BufferKey) -> RubricRow | None:
    """Return the version that the newest round with a change has written."""
    targets = select(RunStepRow.target_id).filter_by(**place._asdict())
    targets = targets.where(RunStepRow.target_id.is_not(None)).order_by(RunStepRow.step.desc()).limit(1)
    id_ = session.scalar(targets)
    return session.get(RubricRow, id_) if id_ is not None else None


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
    targets = select(RunStepRow.target_id).where(RunStepRow.run == run)
    query = select(RubricRow).where(RubricRow.id.in_(targets), RubricRow.state.in_(states))
    return list(session.scalars(query.order_by(RubricRow.id)))
