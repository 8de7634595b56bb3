"""Evolutions of rubrics: started, described, and their best candidates stored as drafts. Needs ``judging``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rubricsvc.core.evolution import Candidate, EvolutionSettings, Objective
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.states import EVOLVED
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError, needs_extra
from rubricsvc.services.analysing import scope_of
from rubricsvc.services.editing import Addition, add_derived
from rubricsvc.services.rubric_changes import changes
from rubricsvc.store import budgets, evolutions, judges, rubrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from rubricsvc.store.tables import CandidateRow, EvolutionRow


@dataclass(frozen=True)
class StartedEvolution:
    """An evolution that is to be worked on, and whether it ``is_new``."""

    row: EvolutionRow
    is_new: bool


def start(
    session: Session,
    ref: int | str,
    *,
    judge: int | str | None = None,
    objective: Objective | None = None,
    budget: float | None = None,
    **options: Any,
) -> StartedEvolution:
    """Add the evolution of a rubric version, or find the one that was started with the same settings and labels.

    Without an ``objective`` it is the first of preferences, scores and verdicts that has enough labels. ``options`` are
    fields of `EvolutionSettings`.

    Raises:
        NotFoundError: There is no such rubric, job or judge.
        InvalidError: The start has no verdicts, there are too few labels or labels of one class, the parts have a
            common prompt, nothing can be changed, or a price is not known.
        UnavailableError: The extra ``judging`` is not installed.
    """
    with needs_extra("judging"):
        from rubricsvc.services.evolution_data import check_parts, choose_objective, read_labelled
        from rubricsvc.services.evolution_operators import check_operators
    row = rubrics.get(session, ref, allow_drafts=True)
    scope = scope_of(session, row.id, options.get("job_id"), judge)
    try:
        draft = EvolutionSettings(objective=objective or "preferences", **options)
    except ValidationError as error:
        path, message = first_error(error, model=EvolutionSettings)
        raise InvalidError(message, path=path) from error
    found = read_labelled(
        session,
        row,
        scope.judge,
        seed=draft.seed,
        held_out=draft.held_out,
        job_id=draft.job_id,
        held_out_job_id=draft.held_out_job_id,
    )
    settings = draft.model_copy(update={"objective": objective or choose_objective(found)})
    check_parts(found, settings.objective)
    check_operators(settings, Candidate(rubric=row.value), scope.judge.value)
    _check_prices(session, settings, scope.judge.value, budget)
    key = digest("evolution", row.id, scope.judge.id, settings, found.digest)
    added, is_new = evolutions.add(
        session,
        key,
        rubric_id=row.id,
        judge_id=scope.judge.id,
        settings=settings,
        budget=budget,
        parts=found.counts(settings.objective),
        data_digest=found.digest,
    )
    return StartedEvolution(added, is_new)


def _check_prices(session: Session, settings: EvolutionSettings, judge: Judge, budget: float | None) -> None:
    if settings.proposer is not None:
        proposer = judges.get(session, settings.proposer).value
        if not proposer.model:
            message = f"judge {proposer.name!r} ({proposer.mode}) has no model of its own"
            raise InvalidError(message, hint="name one of its members", path="proposer")
        budgets.check(proposer, budget)
    if settings.proposer is not None or settings.templates:
        budgets.check(judge, budget)


def lineage(rows: Sequence[CandidateRow], number: int) -> list[CandidateRow]:
    """Return a candidate with its ancestors, by number."""
    by_number = {row.number: row for row in rows}
    found: dict[int, CandidateRow] = {}
    left = [number]
    while left:
        one = left.pop()
        if one not in found and one in by_number:
            found[one] = by_number[one]
            left += by_number[one].parents
    return [found[one] for one in sorted(found)]


def described_changes(start: Candidate, candidate: Candidate) -> list[str]:
    """Return what differs from the start in words: of the rubric, and of its judge."""
    found = [str(change) for change in changes(start.rubric, candidate.rubric)]
    if candidate.template != start.template:
        found.append(f"judge: template {candidate.template or 'its own'}")
    if candidate.threshold != start.threshold:
        found.append(f"judge: threshold {candidate.threshold}")
    return found


def best_of(row: EvolutionRow, rows: Sequence[CandidateRow]) -> CandidateRow | None:
    """Return the best candidate so far on the whole search part, of equal ones the oldest; None if none is scored."""
    scored = [one for one in rows if one.whole and one.score is not None and row.best in (None, one.number)]
    return min(scored, key=lambda one: (-(one.score or 0.0), one.number), default=None)


def best_candidate(session: Session, row: EvolutionRow) -> CandidateRow:
    """Return the best candidate of an evolution so far; the start if no other is better.

    Raises:
        InvalidError: None was scored yet.
    """
    found = best_of(row, evolutions.candidates(session, row.id))
    if found is None:
        hint = f"continue it: rubricsvc evolve start --resume {row.id}"
        raise InvalidError(f"evolution {row.id} has scored no candidate yet", hint=hint)
    return found


def judge_of(row: EvolutionRow, candidate: Candidate) -> Judge | None:
    """Return the judge that a candidate is to be scored by, under another name; None if it is the start's."""
    if candidate.template is None and candidate.threshold is None:
        return None
    given = row.judge.value
    parts = [given.name, candidate.template, None if candidate.threshold is None else f"{candidate.threshold:g}"]
    name = "-".join(one for one in parts if one)
    changed = candidate.judge(given).model_copy(update={"name": name})
    return changed if candidate.threshold is None else changed.model_copy(update={"threshold": candidate.threshold})


def save_best(
    session: Session, row: EvolutionRow, *, name: str | None = None, by: str | None = None, force: bool = False
) -> Addition | None:
    """Store the best candidate's rubric as a draft whose parent is the start; None if it is the start's rubric.

    ``name`` is that of the start by default. The version is a draft whatever the settings say. If somebody has edited
    the start, the addition has a conflict, unless ``force`` is set.

    Raises:
        InvalidError: No candidate was scored yet.
    """
    best = best_candidate(session, row).value
    if best.rubric == row.rubric.value:
        return None
    return add_derived(session, best.rubric, row.rubric, origin=EVOLVED, name=name, by=by, force=force)
