"""``/v1/runs``: training runs on record. Trainers on other machines record theirs here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import IdInPath, Service
from rubricsvc.queries import EvaluationCompletionFilters, EvaluationFilters, Paging, RolloutFilters, RunFilters
from rubricsvc.schemas import Page
from rubricsvc.schemas.runs import (
    NewRun,
    RunEvaluation,
    RunHeartbeat,
    RunReport,
    RunStep,
    StoredEvaluation,
    StoredEvaluationCompletion,
    StoredRollout,
    StoredRun,
    StoredStep,
)

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses())
def create(service: Service, new: Json[NewRun]) -> StoredRun:
    """Begin a training run, or continue that of the same key after `done` steps; later ones on record are deleted."""
    return service.runs.create(new)


@router.get("", responses=error_responses())
def page(service: Service, query: Annotated[RunFilters, Query()]) -> Page[StoredRun]:
    """List runs, oldest first, with how far each of them is."""
    return service.runs.page(query)


@router.get("/{run_id}", responses=error_responses(404))
def get(service: Service, run_id: IdInPath) -> StoredRun:
    """Get a run with its counts of rollouts, its first and last rewards and its configuration."""
    return service.runs.get(run_id)


@router.get("/{run_id}/report", responses=error_responses(404))
def report(
    service: Service, run_id: IdInPath, transcripts: Annotated[int, Query(ge=0, le=1000, description="Maximum.")] = 3
) -> RunReport:
    """Get what is known of a run: metrics, evaluations, samples with their verdicts, alarms with examples."""
    return service.runs.report(run_id, transcripts)


@router.delete("/{run_id}", status_code=204, responses=error_responses(404, 409))
def delete(service: Service, run_id: IdInPath) -> Response:
    """Delete a run with its metrics, rollouts and evaluations. Prompts, rubrics, completions, jobs and its folder stay.

    409 if it is running.
    """
    service.runs.delete(run_id)
    return Response(status_code=204)


@router.post("/{run_id}/heartbeat", responses=error_responses(404))
def heartbeat(service: Service, run_id: IdInPath, heartbeat: Json[RunHeartbeat]) -> StoredRun:
    """Report that a run goes on, or its new state. `stop_requested` says whether it should stop."""
    return service.runs.heartbeat(run_id, heartbeat)


@router.post("/{run_id}/stop", responses=error_responses(404, 409))
def stop(service: Service, run_id: IdInPath) -> StoredRun:
    """Ask a run to stop after its current step, with a checkpoint. 409 if it is not running."""
    return service.runs.stop(run_id)


@router.post("/{run_id}/steps", status_code=201, responses=error_responses(404))
def record(service: Service, run_id: IdInPath, step: Json[RunStep]) -> StoredRun:
    """Record a step with its rollouts, in place of what is on record of it."""
    return service.runs.record(run_id, step)


@router.get("/{run_id}/steps", responses=error_responses(404))
def page_steps(service: Service, run_id: IdInPath, query: Annotated[Paging, Query()]) -> Page[StoredStep]:
    """List the metrics of steps. `after` and `next` are numbers of steps."""
    return service.runs.steps(run_id, query)


@router.get("/{run_id}/rollouts", responses=error_responses(404))
def page_rollouts(service: Service, run_id: IdInPath, query: Annotated[RolloutFilters, Query()]) -> Page[StoredRollout]:
    """List rollouts with their rewards and verdicts, oldest first."""
    return service.runs.rollouts(run_id, query)


@router.post("/{run_id}/evaluations", status_code=201, responses=error_responses(404))
def record_evaluation(service: Service, run_id: IdInPath, evaluation: Json[RunEvaluation]) -> StoredRun:
    """Record an evaluation with its completions, in place of the one of its step or of its baseline."""
    return service.runs.record_evaluation(run_id, evaluation)


@router.get("/{run_id}/evaluations", responses=error_responses(404))
def page_evaluations(
    service: Service, run_id: IdInPath, query: Annotated[EvaluationFilters, Query()]
) -> Page[StoredEvaluation]:
    """List the evaluations of a run and of its baselines, in the order in which they were recorded."""
    return service.runs.evaluations(run_id, query)


@router.get("/{run_id}/evaluations/completions", responses=error_responses(404))
def page_completions(
    service: Service, run_id: IdInPath, query: Annotated[EvaluationCompletionFilters, Query()]
) -> Page[StoredEvaluationCompletion]:
    """List the completions of evaluations with their rewards and verdicts, oldest first."""
    return service.runs.evaluation_completions(run_id, query)
