"""``/v1/jobs``: batches of completions to be scored. Submitting puts them in the queue; workers do the rest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from sqlalchemy.exc import IntegrityError

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import declared
from rubricsvc.api.pagination import After, Limit, paged
from rubricsvc.api.request import Db, IdInPath
from rubricsvc.core.states import JobStatus
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas import (
    Item,
    JobProgress,
    JobSummary,
    NewJob,
    Page,
    PreferencePair,
    RetriedJob,
    StoredJob,
    Whole,
)
from rubricsvc.store import completions, jobs, judges, pairs, rubrics, verdicts
from rubricsvc.store.session import RANG, Database
from rubricsvc.store.tables import ItemRow, JobRow

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=StrictRoute)


def show(row: JobRow, progress: jobs.Progress | None = None, summary: jobs.Summary | None = None) -> StoredJob:
    return StoredJob(
        id=row.id,
        created_at=row.created_at,
        name=row.name,
        judge_id=row.judge_id,
        judge=row.judge.name,
        status=row.status,
        finished_at=row.finished_at,
        budget=row.budget,
        spent=row.spent,
        progress=JobProgress.model_validate(progress.as_dict()) if progress else None,
        summary=JobSummary.model_validate(summary, from_attributes=True) if summary else None,
    )


def _told(db: Database, job_id: int, *, summary: bool = False) -> StoredJob:
    """The job as it stands. Its summary reads every verdict, which no writer should wait for: not in a write."""
    with db.read() as session:
        job = jobs.get(session, job_id)
        told = jobs.summary(session, job_id) if summary or job.finished_at else None
        return show(job, jobs.progress(session, job_id), told)


@router.post("", status_code=201, responses={**declared(404, 409), 200: {"model": StoredJob}})
def submit(
    db: Db,
    new: Json[NewJob],
    response: Response,
    idempotency_key: Annotated[
        str | None, Header(min_length=1, max_length=200, description="sent again, it gives the same job, with 200")
    ] = None,
) -> StoredJob:
    """Have completions scored. Without an Idempotency-Key the same judge and items give the same job.

    201 for a new job, 200 for one that was there, 409 where the key stands for another judge or other items.
    """
    try:
        with db.write() as session:
            judge = judges.get(session, new.judge)
            rubric_ids = {ref: rubrics.get(session, ref).id for ref in {item.rubric for item in new.items}}
            wanted = [(item.completion_id, rubric_ids[item.rubric]) for item in new.items]
            job = jobs.submit(
                session, judge_id=judge.id, items=wanted, key=idempotency_key, name=new.name, budget=new.budget
            )
            if RANG not in session.info:  # only a new job rings
                response.status_code = 200
    except IntegrityError:
        _refuse_unknown_completion(db, new)
        raise
    return _told(db, job.id)


def _refuse_unknown_completion(db: Database, new: NewJob) -> None:
    """Raises NotFoundError naming the first completion that is not there."""
    with db.read() as session:
        for item in new.items:
            completions.get(session, item.completion_id)


@router.get("", responses=declared())
def page(
    db: Db, status: Annotated[JobStatus | None, Query()] = None, after: After = 0, limit: Limit = 50
) -> Page[StoredJob]:
    """All jobs, oldest first."""
    with db.read() as session:
        return paged(lambda n: jobs.page(session, after=after, limit=n, status=status), show, limit)


@router.get("/{job_id}", responses=declared(404))
def get(
    db: Db,
    job_id: IdInPath,
    summary: Annotated[bool, Query(description="what it came to so far, though it has not ended")] = False,
) -> StoredJob:
    """One job, with its progress; and once it has ended with what it came to."""
    return _told(db, job_id, summary=summary)


@router.get("/{job_id}/items", responses=declared(404))
def items(
    db: Db,
    job_id: IdInPath,
    verdicts_too: Annotated[bool, Query(alias="verdicts", description="with each item's verdicts")] = True,
    after: After = 0,
    limit: Limit = 100,
) -> Page[Item]:
    """What the job's completions were judged worth, and why."""
    with db.read() as session:
        jobs.get(session, job_id)
        found: dict[int, list[Verdict]] = {}

        def fetch(n: int) -> list[ItemRow]:
            rows = jobs.results(session, job_id, after=after, limit=n)
            if verdicts_too:
                found.update(verdicts.for_items(session, [row.id for row in rows[:limit]]))
            return rows

        def show_item(row: ItemRow) -> Item:
            return Item(
                id=row.id,
                completion_id=row.completion_id,
                rubric_id=row.rubric_id,
                state=row.state,
                reward=row.reward,
                coverage=row.coverage,
                formula=row.formula,
                vetoed_by=row.vetoed_by,
                null_reason=row.null_reason,
                verdicts=tuple(found.get(row.id, ())),
            )

        return paged(fetch, show_item, limit)


@router.get("/{job_id}/pairs", responses=declared(404))
def preference_pairs(
    db: Db,
    job_id: IdInPath,
    min_margin: Annotated[float, Query(ge=0, description="rewards at least so far apart; ties are no pairs")] = 0.0,
    after: After = 0,
    limit: Annotated[Whole, Query(ge=1, le=1000, description="the most pairs, or all of one chosen completion")] = 100,
) -> Page[PreferencePair]:
    """Each two completions of a prompt of which one was judged worth more; the pairs of a chosen one are together."""
    with db.read() as session:
        found, further = pairs.page(session, job_id, after=after, limit=limit, min_margin=min_margin)
        return Page(data=tuple(map(PreferencePair.model_validate, found)), next=further)


@router.post("/{job_id}/cancel", responses=declared(404))
def cancel(db: Db, job_id: IdInPath) -> StoredJob:
    """Stop a job. What was scored stays."""
    with db.write() as session:
        jobs.cancel(session, job_id)
    return _told(db, job_id)


@router.post("/{job_id}/retry", responses=declared(404))
def retry(
    db: Db,
    job_id: IdInPath,
    budget: Annotated[float | None, Query(gt=0, description="US dollars for all that the job costs")] = None,
) -> RetriedJob:
    """Score the failed and cancelled items again; settled verdicts are kept and not asked for twice."""
    with db.write() as session:
        reopened = jobs.retry(session, job_id, budget=budget)
    return RetriedJob(reopened=reopened, job=_told(db, job_id))
