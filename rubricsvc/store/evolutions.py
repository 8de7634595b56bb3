"""Evolutions of rubrics, and the versions that their steps use.

The versions that a training run writes for a prompt have one name: its lineage.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.evolution import BufferedCriterion
from rubricsvc.core.states import APPROVED
from rubricsvc.store.session import existing, get_or_add
from rubricsvc.store.tables import EvolutionRow, EvolutionStepRow, JobRow, RubricRow


def get(session: Session, evolution_id: int | str) -> EvolutionRow:
    """Return the row.

    Raises:
        NotFoundError: There is none.
    """
    hint = "list them with `rubricsvc evolve show` or GET /v1/evolutions"
    return existing(session, EvolutionRow, "evolution", evolution_id, hint=hint)


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


def steps(session: Session, evolution_id: int) -> list[EvolutionStepRow]:
    """Return the steps, in order."""
    query = select(EvolutionStepRow).filter_by(evolution_id=evolution_id)
    return list(session.scalars(query.order_by(EvolutionStepRow.step)))


def begin_step(session: Session, row: EvolutionRow, number: int) -> EvolutionStepRow:
    """Record the version that a step uses; what is recorded already stays.

    It is what the newest round has written; in a run, if that is not approved, the newest version that it has written
    and that is.
    """
    key = {"evolution_id": row.id, "step": number}
    used = newest_target(session, row.id) or row.rubric
    if row.run is not None and used.state != APPROVED:
        query = select(RubricRow).join(EvolutionStepRow, EvolutionStepRow.target_id == RubricRow.id)
        query = query.where(EvolutionStepRow.evolution_id == row.id, RubricRow.state == APPROVED)
        query = query.order_by(RubricRow.version.desc())
        used = session.scalars(query.limit(1)).first() or row.rubric
    return get_or_add(session, EvolutionStepRow, key, rubric_id=used.id)[0]


def newest_entries(session: Session, row: EvolutionRow) -> list[BufferedCriterion]:
    """Return the buffer after the newest round, or in the one that is under way; before the first, what is authored."""
    query = select(EvolutionStepRow).where(EvolutionStepRow.entries.is_not(None))
    query = query.filter_by(evolution_id=row.id).order_by(EvolutionStepRow.step.desc())
    newest = session.scalars(query.limit(1)).first()
    if newest is not None:
        return [BufferedCriterion.model_validate(one) for one in newest.entries or ()]
    return [BufferedCriterion(criterion=one, state="frozen") for one in row.rubric.value.criteria]


def newest_target(session: Session, evolution_id: int) -> RubricRow | None:
    """Return the version that the newest round with a change has written."""
    query = select(RubricRow).join(EvolutionStepRow, EvolutionStepRow.target_id == RubricRow.id)
    query = query.where(EvolutionStepRow.evolution_id == evolution_id).order_by(EvolutionStepRow.step.desc())
    return session.scalars(query.limit(1)).first()


def jobs_of(session: Session, evolution_id: int) -> list[JobRow]:
    """Return the jobs of an evolution, in order: their idempotency keys begin with ``evolution-ID-``."""
    query = select(JobRow).where(JobRow.key.startswith(f"evolution-{evolution_id}-"))
    return list(session.scalars(query.order_by(JobRow.id)))
