"""`Evolutions`: rubrics that labels or the rollouts of a training run improve, in the rounds of `services.evolving`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.core.evolution import EvolutionReport, EvolutionRequest, EvolutionStep, EvolutionSummary
from rubricsvc.errors import needs_extra
from rubricsvc.queries import EvolutionFilters
from rubricsvc.schemas import Page
from rubricsvc.schemas.base import takes
from rubricsvc.stats import OnProgress
from rubricsvc.store import completions, evolutions
from rubricsvc.store.session import by_id, page_of
from rubricsvc.store.tables import EvolutionRow, RubricRow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.services.evolving import Propose
    from rubricsvc.store.session import Database


@dataclass(eq=False)
class Evolutions:
    """Evolutions, by id."""

    db: Database

    @takes(EvolutionFilters)
    def page(self, query: EvolutionFilters) -> Page[EvolutionSummary]:
        """List evolutions, oldest first, with how far each of them is."""
        with self.db.read() as session:
            prompt_id = completions.get_prompt(session, query.prompt).id if query.prompt is not None else None
            rows = page_of(session, EvolutionRow, query.after, query.limit + 1, run=query.run, prompt_id=prompt_id)
            return Page.cut([EvolutionSummary(**_summary(session, row)) for row in rows], query.limit)

    def get(self, evolution_id: int) -> EvolutionReport:
        """Get an evolution: the criteria of its buffer, its rounds, and what it gains on held-out prompts."""
        with self.db.read() as session:
            row = evolutions.get(session, evolution_id)
            steps = [one for one in evolutions.steps(session, row.id) if one.round is not None]
            ids = {id_ for one in steps for id_ in (one.rubric_id, one.target_id) if id_}
            used = {id_: version.ref for id_, version in by_id(session, RubricRow, ids).items()} | {None: None}
            rounds = [
                {"step": one.step, "used": used[one.rubric_id], "wrote": used[one.target_id], "round": one.round}
                for one in steps
            ]
            return EvolutionReport(
                **_summary(session, row),
                settings=row.request,
                entries=tuple(evolutions.newest_entries(session, row)),
                rounds=tuple(map(EvolutionStep.model_validate, rounds)),
                jobs=tuple(job.id for job in evolutions.jobs_of(session, row.id)),
            )

    def evolve(
        self,
        rubric: int | str,
        request: EvolutionRequest,
        score_job: Callable[[int], None],
        propose: Propose | None = None,
        *,
        on_progress: OnProgress = lambda done, total, note: None,
    ) -> EvolutionReport:
        """Evolve a rubric version on labels; with the same settings, labels and verdicts, continue or return that.

        ``score_job`` waits until a job is finished; ``propose`` asks a model for criteria, where the request has a
        proposer; ``on_progress`` is called with the round, their number and a note.

        Raises:
            NotFoundError: There is no such rubric, job or judge.
            InvalidError: The start has no verdicts, there are too few labels or labels of one class, a price is not
                known, or the budget is used up: with a larger one it continues.
            ConflictError: Another process continues it.
            UnavailableError: A model cannot be asked, or the extra ``judging`` is not installed.
        """
        with needs_extra("judging"):
            from rubricsvc.services.evolving import LabelSource, hold_rounds
        source, note = LabelSource(self.db, rubric, request, score_job, propose), ""
        if self.get(source.id).finished_at is None:
            for step in range(request.rounds):
                on_progress(step, request.rounds, note)
                (one,) = hold_rounds(self.db, step, [source.id], source)
                note = f"agreement {one.done.score:.4f}" if one.done and one.done.score is not None else ""
            source.finish()
            on_progress(request.rounds, request.rounds, "")
        return self.get(source.id)


def _summary(session: Session, row: EvolutionRow) -> dict[str, Any]:
    """Return the fields of a summary."""
    steps, newest = evolutions.steps(session, row.id), evolutions.newest_target(session, row.id)
    names = ("id", "created_at", "finished_at", "run", "prompt_id", "held_out")
    jobs = evolutions.jobs_of(session, row.id) if row.run is None else []
    held = steps if row.run is not None else [one for one in steps if one.round_value and one.round_value.decided]
    return {name: getattr(row, name) for name in names} | {
        "rubric": row.rubric.ref,
        "newest": newest.ref if newest is not None else None,
        "steps": len(held) - (row.run is None and row.finished_at is not None),
        "planned": row.request.rounds if row.request is not None else None,
        "cost": evolutions.proposal_costs(session, evolution_id=row.id) + sum(job.spent for job in jobs),
    }
