"""``/v1/jobs``: batches of completions to be scored by workers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, IdInPath
from rubricsvc.core.job_comparison import JobComparison
from rubricsvc.errors import InvalidError
from rubricsvc.queries import CompareQuery, ItemFilters, JobFilters, JobQuery, PairFilters, ReportQuery, RescoreQuery
from rubricsvc.schemas import Item, NewJob, Page, PreferencePair, RetriedJob, StoredJob
from rubricsvc.services import comparing
from rubricsvc.services.job_results import read_results
from rubricsvc.services.submitting import with_rubrics
from rubricsvc.store import completions, items, jobs, judges, pairs, summaries, workers
from rubricsvc.store.session import PUBLISHED, Database
from rubricsvc.store.tables import JobRow
from rubricsvc.store.verdicts import for_items
from rubricsvc.web.jobs import render_job

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=StrictRoute)

IdempotencyKey = Annotated[
    str | None, Header(min_length=1, max_length=200, description="The same key returns the same job, with 200.")
]

MAX_REPORT_ITEMS = 2000
"""About 4 seconds of reading."""


def _of(row: JobRow, **fields: object) -> StoredJob:
    return StoredJob.of(row, **({"judge": row.judge.name, "workers": None, "progress": None, "summary": None} | fields))


def load(db: Database, job_id: int, *, summary: bool = False) -> StoredJob:
    """Return a job with its progress. A summary reads every verdict, so this runs outside of write transactions."""
    with db.read() as session:
        job = jobs.get(session, job_id)
        results = summaries.of_job(session, job_id) if summary or job.finished_at else None
        running = None if job.finished_at else workers.running(session)
        return _of(job, workers=running, progress=jobs.progress(session, job_id), summary=results)


@router.post("", status_code=201, responses={**error_responses(404, 409), 200: {"model": StoredJob}})
def submit(
    db: Db,
    new: Json[NewJob],
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> StoredJob:
    """Submit a scoring job. Without an Idempotency-Key the same judge and items return the same job.

    201 for a new job, 200 for an existing one, 409 if the key was used with another judge or other items, if the job
    exists with another budget or without one, or if a rubric is not approved and `allow_drafts` is false.
    """
    try:
        with db.write() as session:
            judge = judges.get(session, new.judge)
            asked = ((item.completion_id, item.rubric) for item in new.items)
            wanted = with_rubrics(session, asked, allow_drafts=new.allow_drafts)
            options = new.model_dump(include={"name", "budget", "min_coverage", "allow_drafts"})
            job = jobs.submit(session, judge_id=judge.id, items=wanted, key=idempotency_key, **options)
            if PUBLISHED not in session.info:  # only a new job publishes
                response.status_code = 200
    except IntegrityError:
        with db.read() as session:
            for item in new.items:
                completions.get(session, item.completion_id)  # raises NotFoundError for an unknown one
        raise
    return load(db, job.id)


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[JobFilters, Query()]) -> Page[StoredJob]:
    """List jobs, oldest first, with their progress."""

    def fetch(session: Session, **paging: Any) -> list[StoredJob]:
        rows = jobs.page(session, **paging)
        progress = jobs.progress_of(session, [row.id for row in rows])
        return [_of(row, progress=progress[row.id]) for row in rows]

    return paginate(db, fetch, lambda job: job, query)


@router.get("/{job_id}", responses=error_responses(404))
def get(db: Db, job_id: IdInPath, query: Annotated[JobQuery, Query()]) -> StoredJob:
    """Get a job with its progress, and with its summary once it is finished."""
    return load(db, job_id, summary=query.summary)


@router.get("/{job_id}/items", responses=error_responses(404))
def page_items(db: Db, job_id: IdInPath, query: Annotated[ItemFilters, Query()]) -> Page[Item]:
    """List items: one reward per completion, with its verdicts; or one rubric per prompt."""

    def fetch(session: Session, *, verdicts: bool, **selection: Any) -> list[Item]:
        jobs.get(session, job_id)
        rows = items.page(session, job_id, **selection)
        by_item = for_items(session, [row.id for row in rows]) if verdicts else {}
        return [
            Item.of(
                row,
                policy=row.completion.policy if row.prompt_id is None else "",
                verdicts=tuple(by_item.get(row.id, ())),
            )
            for row in rows
        ]

    return paginate(db, fetch, lambda item: item, query)


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
def page_pairs(db: Db, job_id: IdInPath, query: Annotated[PairFilters, Query()]) -> Page[PreferencePair]:
    """List preference pairs: two completions of a prompt with different rewards."""
    with db.read() as session:
        rows, following = pairs.page(session, job_id, **query.model_dump())
    return Page(data=tuple(map(PreferencePair.model_validate, rows)), next=following)


@router.get("/{job_id}/compare/{other_id}", responses=error_responses(404))
def compare(db: Db, job_id: IdInPath, other_id: IdInPath, query: Annotated[CompareQuery, Query()]) -> JobComparison:
    """Compare the other job with this one, on what both scored: judges, rubric versions or policies."""
    with db.read() as session:
        return comparing.compare(session, job_id, other_id, by=query.by)


@router.post("/{job_id}/cancel", responses=error_responses(404))
def cancel(db: Db, job_id: IdInPath) -> StoredJob:
    """Cancel a job. Scored items keep their rewards."""
    with db.write() as session:
        jobs.cancel(session, job_id)
    return load(db, job_id)


@router.post("/{job_id}/rescore", status_code=201, responses={**error_responses(404, 409), 200: {"model": StoredJob}})
def rescore(
    db: Db,
    job_id: IdInPath,
    response: Response,
    query: Annotated[RescoreQuery, Query()],
) -> StoredJob:
    """Score a job's completions under the newest approved version of its rubrics, as a new job.

    Stored verdicts are reused: after a change of weights or of `min_coverage` no judge is asked. 200 where nothing has
    changed, 409 if the job exists with another budget.
    """
    with db.write() as session:
        job = jobs.rescore(session, job_id, **query.model_dump())
        if job.id == job_id or PUBLISHED not in session.info:
            response.status_code = 200
    return load(db, job.id)


@router.post("/{job_id}/retry", responses=error_responses(404))
def retry(
    db: Db,
    job_id: IdInPath,
    budget: Annotated[
        float | None, Query(gt=0, allow_inf_nan=False, description="New budget in US dollars, for the whole job.")
    ] = None,
) -> RetriedJob:
    """Score failed and cancelled items again. Scored verdicts are kept and not asked again."""
    with db.write() as session:
        reopened = jobs.retry(session, job_id, budget=budget)
    return RetriedJob(reopened=reopened, job=load(db, job_id))
