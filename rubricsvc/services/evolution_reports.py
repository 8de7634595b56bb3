"""What evolutions have found, for the command line, the API and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rubricsvc.core.evolution import Candidate, CandidateSummary, EvolutionReport, EvolutionSummary, PartCounts
from rubricsvc.services.evolving import best_of, described_changes, judge_of, lineage
from rubricsvc.store import evolutions, items

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.store.tables import CandidateRow, EvolutionRow


def evolution_summaries(session: Session, rows: Sequence[EvolutionRow]) -> list[EvolutionSummary]:
    """Return how far each of these evolutions is."""
    return [_summary(session, row, evolutions.candidates(session, row.id)) for row in rows]


def _summary(session: Session, row: EvolutionRow, rows: Sequence[CandidateRow]) -> EvolutionSummary:
    settings, result = row.settings_value, row.held_out
    best = best_of(row, rows)
    start = next((one for one in rows if one.number == 0), None)
    planned = settings.planned
    fields = {
        name: getattr(row, name) for name in ("id", "created_at", "updated_at", "finished_at", "status", "budget")
    }
    return EvolutionSummary(
        **fields,
        rubric=row.rubric.ref,
        judge=row.judge.name,
        objective=settings.objective,
        reached=planned if row.status == evolutions.COMPLETED else max((one.number for one in rows), default=0),
        planned=planned,
        candidates=len(rows),
        start_score=start.score if start else None,
        best_score=best.score if best else None,
        best=best.number if best else None,
        difference=result.objectives[0].difference if result else None,
        gain=result.gain if result else None,
        cost=evolutions.spent(session, row.id),
    )


def evolution_report(session: Session, evolution_id: int | str) -> EvolutionReport:
    """Return all that an evolution has found so far.

    Raises:
        NotFoundError: There is no such evolution.
    """
    row = evolutions.get(session, evolution_id)
    rows = evolutions.candidates(session, row.id)
    best, start = best_of(row, rows), Candidate(rubric=row.rubric.value)
    value = best.value if best else None
    return EvolutionReport(
        summary=_summary(session, row, rows),
        settings=row.settings_value,
        parts=PartCounts.model_validate(row.parts),
        held_out=row.held_out,
        best=value,
        start=start,
        judge=judge_of(row, value) if value else None,
        changes=tuple(described_changes(start, value)) if value else (),
        lineage=tuple(map(_candidate, lineage(rows, best.number))) if best else (),
        candidates=tuple(map(_candidate, sorted(rows, key=lambda one: one.number))),
        jobs=tuple(job.id for job in evolutions.jobs_of(session, row.id)),
        asked_again=items.asked_again(session, items.OF_EVOLUTION, [row.id]),
    )


def _candidate(row: CandidateRow) -> CandidateSummary:
    names = ("number", "generation", "island", "operator", "parents", "score", "whole", "reason")
    criteria = len(row.content["rubric"]["criteria"]) if row.content else 0
    return CandidateSummary.model_validate({name: getattr(row, name) for name in names} | {"criteria": criteria})
