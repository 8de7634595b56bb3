"""``/v1/runs``: training runs on record. Trainers on other machines record theirs here."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy.orm import Session

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, IdInPath, SettingsDep, ValidatorsDep
from rubricsvc.core.run import NewRun, RunHeartbeat, RunStep, StoredRollout, StoredRun, StoredStep
from rubricsvc.core.run_evaluation import RunEvaluation, StoredEvaluation, StoredEvaluationCompletion
from rubricsvc.queries import EvaluationCompletionFilters, EvaluationFilters, Paging, RolloutFilters, RunFilters
from rubricsvc.schemas import Page
from rubricsvc.services import recording, run_evaluations
from rubricsvc.services.recording import DatabaseRuns
from rubricsvc.store import runs

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses())
def create(db: Db, new: Json[NewRun]) -> StoredRun:
    """Begin a training run, or continue that of the same key after `done` steps; later ones on record are deleted."""
    return DatabaseRuns(db).create(new)


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[RunFilters, Query()]) -> Page[StoredRun]:
    """List runs, oldest first, with how far each of them is."""

    def fetch(session: Session, **paging: Any) -> list[StoredRun]:
        return recording.summaries(session, runs.page(session, **paging))

    return paginate(db, fetch, lambda one: one, query)


@router.get("/{run_id}", responses=error_responses(404))
def get(db: Db, run_id: IdInPath) -> StoredRun:
    """Get a run with its counts of rollouts, its first and last rewards and its configuration."""
    with db.read() as session:
        return recording.details(session, run_id)


@router.delete("/{run_id}", status_code=204, responses=error_responses(404, 409))
def delete(db: Db, run_id: IdInPath) -> Response:
    """Delete a run with its metrics, rollouts and evaluations. Prompts, rubrics, completions, jobs and its folder stay.

    409 if it is running.
    """
    with db.write() as session:
        runs.remove(session, run_id)
    return Response(status_code=204)


@router.post("/{run_id}/heartbeat", responses=error_responses(404))
def heartbeat(db: Db, run_id: IdInPath, heartbeat: Json[RunHeartbeat]) -> StoredRun:
    """Report that a run goes on, or its new state. `stop_requested` says whether it should stop."""
    return DatabaseRuns(db).heartbeat(run_id, heartbeat)


@router.post("/{run_id}/stop", responses=error_responses(404, 409))
def stop(db: Db, run_id: IdInPath) -> StoredRun:
    """Ask a run to stop after its current step, with a checkpoint. 409 if it is not running."""
    with db.write() as session:
        row = runs.request_stop(session, run_id)
        return recording.summaries(session, [row])[0]


@router.post("/{run_id}/steps", status_code=201, responses=error_responses(404))
def record(
    db: Db, run_id: IdInPath, step: Json[RunStep], settings: SettingsDep, validators: ValidatorsDep
) -> StoredRun:
    """Record a step with its rollouts, in place of what is on record of it."""
    for group in step.groups:
        validators.rubric(group.rubric)
    return DatabaseRuns(db, settings.require_approval).record(run_id, step)


@router.get("/{run_id}/steps", responses=error_responses(404))
def page_steps(db: Db, run_id: IdInPath, query: Annotated[Paging, Query()]) -> Page[StoredStep]:
    """List the metrics of steps. `after` and `next` are numbers of steps."""
    with db.read() as session:
        rows = runs.steps(session, runs.get(session, run_id).id, after=query.after, limit=query.limit + 1)
    data = tuple(recording.stored_step(row) for row in rows[: query.limit])
    return Page(data=data, next=data[-1].step if len(rows) > query.limit else None)


@router.get("/{run_id}/rollouts", responses=error_responses(404))
def page_rollouts(db: Db, run_id: IdInPath, query: Annotated[RolloutFilters, Query()]) -> Page[StoredRollout]:
    """List rollouts with their rewards and verdicts, oldest first."""

    def fetch(session: Session, **selection: Any) -> list[StoredRollout]:
        return recording.rollouts(session, run_id, **selection)

    return paginate(db, fetch, lambda one: one, query)


@router.post("/{run_id}/evaluations", status_code=201, responses=error_responses(404))
def record_evaluation(
    db: Db, run_id: IdInPath, evaluation: Json[RunEvaluation], settings: SettingsDep, validators: ValidatorsDep
) -> StoredRun:
    """Record an evaluation with its completions, in place of the one of its step or of its baseline."""
    for group in evaluation.groups:
        validators.rubric(group.rubric)
    return DatabaseRuns(db, settings.require_approval).record_evaluation(run_id, evaluation)


@router.get("/{run_id}/evaluations", responses=error_responses(404))
def page_evaluations(db: Db, run_id: IdInPath, query: Annotated[EvaluationFilters, Query()]) -> Page[StoredEvaluation]:
    """List the evaluations of a run and of its baselines, in the order in which they were recorded."""

    def fetch(session: Session, **selection: Any) -> list[StoredEvaluation]:
        return run_evaluations.page(session, run_id, **selection)

    return paginate(db, fetch, lambda one: one, query)


@router.get("/{run_id}/evaluations/completions", responses=error_responses(404))
def page_completions(
    db: Db, run_id: IdInPath, query: Annotated[EvaluationCompletionFilters, Query()]
) -> Page[StoredEvaluationCompletion]:
    """List the completions of evaluations with their rewards and verdicts, oldest first."""

    def fetch(session: Session, **selection: Any) -> list[StoredEvaluationCompletion]:
        return run_evaluations.completions(session, run_id, **selection)

    return paginate(db, fetch, lambda one: one, query)
