"""``/v1/jobs``: batches of completions to be scored by workers."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import HTMLResponse

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import Db, IdInPath, Service
from rubricsvc.core.job_comparison import JobComparison
from rubricsvc.errors import InvalidError
from rubricsvc.queries import CompareQuery, ItemFilters, JobFilters, JobQuery, PairFilters, ReportQuery, RescoreQuery
from rubricsvc.schemas import (
    Item,
    NewGeneration,
    NewJob,
    NewRewards,
    Page,
    PreferencePair,
    RetriedJob,
    RetryRequest,
    StoredJob,
)
from rubricsvc.services.job_results import read_results
from rubricsvc.store import jobs
from rubricsvc.web.jobs import render_job

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=StrictRoute)

IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=200, description="The same key returns the same job, with 200.")
]

R = TypeVar("R", NewJob, NewGeneration, NewRewards)


def with_key(new: R, header: str | None) -> R:
    """Return a request with the key of its header, if it has none itself."""
    return new if header is None or new.key is not None else new.model_copy(update={"key": header})


def created(job: StoredJob, response: Response) -> StoredJob:
    """Set the status of a response with a job that exists already to 200, and return the job."""
    if not job.is_new:
        response.status_code = 200
    return job


MAX_REPORT_ITEMS = 2000
"""About 4 seconds of reading."""


@router.post("", status_code=201, responses={**error_responses(404, 409), 200: {"model": StoredJob}})
def submit(
    service: Service, new: Json[NewJob], response: Response, idempotency_key: IdempotencyKey = None
) -> StoredJob:
    """Submit a scoring job. Without an Idempotency-Key the same judge and items return the same job.

    201 for a new job, 200 for an existing one, 409 if the key was used with another judge or other items, if the job
    exists with another budget or without one, or if a rubric is not approved and `allow_drafts` is false.
    """
    return created(service.jobs.submit(with_key(new, idempotency_key)), response)


@router.get("", responses=error_responses())
def page(service: Service, query: Annotated[JobFilters, Query()]) -> Page[StoredJob]:
    """List jobs, oldest first, with their progress."""
    return service.jobs.page(query)


@router.get("/{job_id}", responses=error_responses(404))
def get(service: Service, job_id: IdInPath, query: Annotated[JobQuery, Query()]) -> StoredJob:
    """Get a job with its progress, and with its summary once it is finished."""
    return service.jobs.get(job_id, query)


@router.get("/{job_id}/items", responses=error_responses(404))
def page_items(service: Service, job_id: IdInPath, query: Annotated[ItemFilters, Query()]) -> Page[Item]:
    """List items: one reward per completion, with its verdicts; or one rubric per prompt."""
    return service.jobs.items(job_id, query)


@router.get(
    "/{job_id}/report",
    response_model=None,
    responses={**error_responses(404), 200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
def get_report(db: Db, job_id: IdInPath, query: Annotated[ReportQuery, Query()]) -> HTMLResponse:
    """Get the report of a job as one HTML page that loads nothing: of at most 2,000 items, since it reads them all."""
    with db.read() as session:
        total = jobs.progress(session, jobs.scoring(session, job_id).id).total
    if total > MAX_REPORT_ITEMS:
        message = f"job {job_id} has {total} items; a report over HTTP is limited to {MAX_REPORT_ITEMS}"
        raise InvalidError(message, hint=f"write it on the service's machine: `rubricsvc jobs report {job_id}`")
    return HTMLResponse(render_job(read_results(db, job_id, extremes=query.completions)))


@router.get("/{job_id}/pairs", responses=error_responses(404))
def page_pairs(service: Service, job_id: IdInPath, query: Annotated[PairFilters, Query()]) -> Page[PreferencePair]:
    """List preference pairs: two completions of a prompt with different rewards."""
    return service.jobs.pairs(job_id, query)


@router.get("/{job_id}/compare/{other_id}", responses=error_responses(404))
def compare(
    service: Service, job_id: IdInPath, other_id: IdInPath, query: Annotated[CompareQuery, Query()]
) -> JobComparison:
    """Compare the other job with this one, on what both scored: judges, rubric versions or policies."""
    return service.jobs.compare(job_id, other_id, by=query.by)


@router.post("/{job_id}/cancel", responses=error_responses(404))
def cancel(service: Service, job_id: IdInPath) -> StoredJob:
    """Cancel a job. Scored items keep their rewards."""
    return service.jobs.cancel(job_id)


@router.post("/{job_id}/rescore", status_code=201, responses={**error_responses(404, 409), 200: {"model": StoredJob}})
def rescore(
    service: Service, job_id: IdInPath, response: Response, query: Annotated[RescoreQuery, Query()]
) -> StoredJob:
    """Score a job's completions under the newest approved version of its rubrics, as a new job.

    Stored verdicts are reused: after a change of weights or of `min_coverage` no judge is asked. 200 where nothing has
    changed, 409 if the job exists with another budget.
    """
    return created(service.jobs.rescore(job_id, query), response)


@router.post("/{job_id}/retry", responses=error_responses(404))
def retry(service: Service, job_id: IdInPath, query: Annotated[RetryRequest, Query()]) -> RetriedJob:
    """Score failed and cancelled items again. Scored verdicts are kept and not asked again."""
    return service.jobs.retry(job_id, query)
