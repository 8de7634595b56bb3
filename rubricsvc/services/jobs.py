"""`Jobs`: batches of work, as completions to score or prompts to give rubrics."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from sqlalchemy.exc import IntegrityError

from rubricsvc.core.job_comparison import JobComparison, PairedBy
from rubricsvc.queries import ItemFilters, JobFilters, JobQuery, PairFilters, RescoreQuery
from rubricsvc.schemas import Item, NewJob, Page, PreferencePair, RetriedJob, RetryRequest, StoredJob
from rubricsvc.schemas.methods import takes
from rubricsvc.schemas.waiting import WAIT_SECONDS, Notify, OnProgress, polling
from rubricsvc.services import comparing
from rubricsvc.services.submitting import with_rubrics
from rubricsvc.services.waiting import POLL_SECONDS, answered
from rubricsvc.store import completions, items, jobs, judges, workers
from rubricsvc.store.session import PUBLISHED, Database
from rubricsvc.store.verdicts import for_items

if TYPE_CHECKING:
    from rubricsvc.store.tables import JobRow


log = logging.getLogger(__name__)


By = Annotated[PairedBy | None, Field(description="What to pair; by default completions, else prompts.")]


class Jobs:
    """Jobs, by id."""

    def __init__(self, db: Database) -> None:
        self.db = db

    @takes(NewJob)
    def submit(self, new: NewJob) -> StoredJob:
        """Submit completions for scoring. The same key, or without one the same judge and items, give the same job.

        Raises:
            NotFoundError: The judge, a rubric or a completion is unknown.
            NotApprovedError: A rubric is not approved, and ``allow_drafts`` is not set.
            ConflictError: The key belongs to another job, or the job exists with another budget.
        """
        try:
            with self.db.write() as session:
                judge = judges.get(session, new.judge)
                asked = ((item.completion_id, item.rubric) for item in new.items)
                wanted = with_rubrics(session, asked, allow_drafts=new.allow_drafts)
                options = new.model_dump(include={"key", "name", "budget", "min_coverage", "allow_drafts"})
                job = jobs.submit(session, judge_id=judge.id, items=wanted, **options)
                is_new = PUBLISHED in session.info
        except IntegrityError:
            with self.db.read() as session:
                for item in new.items:
                    completions.get(session, item.completion_id)  # raises NotFoundError for an unknown one
            raise
        return self._load(job.id, is_new=is_new)

    @takes(JobQuery)
    def get(self, job_id: int, query: JobQuery) -> StoredJob:
        """Get a job with its progress, and with its summary once it is finished."""
        return self._load(job_id, summary=query.summary)

    def wait(
        self,
        job_id: int,
        timeout: float | None = WAIT_SECONDS,
        on_progress: OnProgress | None = None,
        notify: Notify = log.warning,
    ) -> StoredJob:
        """Wait until a job is finished, and return it. ``on_progress`` is called with the job at each poll.

        Raises:
            TimeoutError: The job is not finished after ``timeout`` seconds (None: no limit). It goes on.
            UnavailableError: The database did not answer for `Settings.outage_seconds`.
        """
        polls = polling(job_id, timeout, on_progress, notify, longest=POLL_SECONDS)
        delay = next(polls)
        while True:
            time.sleep(delay)
            job = answered(partial(self.get, job_id), notify)
            try:
                delay = polls.send(job)
            except StopIteration:
                return job

    @takes(JobFilters)
    def page(self, query: JobFilters) -> Page[StoredJob]:
        """List jobs, oldest first, with their progress."""
        with self.db.read() as session:
            rows = jobs.page(session, after=query.after, limit=query.limit + 1, status=query.status)
            progress = jobs.progress_of(session, [row.id for row in rows])
            return Page.cut([_of(row, progress=progress[row.id]) for row in rows], query.limit)

    @takes(ItemFilters)
    def items(self, job_id: int, query: ItemFilters) -> Page[Item]:
        """List items: one reward per completion, with its verdicts; or one rubric per prompt."""
        selection = query.model_dump(exclude={"verdicts"}) | {"limit": query.limit + 1}
        with self.db.read() as session:
            jobs.get(session, job_id)
            rows = items.rewards(session, job_id, **selection)
            by_item = for_items(session, [row.id for row in rows]) if query.verdicts else {}
        found = [Item.model_validate({**row._asdict(), "verdicts": by_item.get(row.id, ())}) for row in rows]
        return Page.cut(found, query.limit)

    @takes(PairFilters)
    def pairs(self, job_id: int, query: PairFilters) -> Page[PreferencePair]:
        """List preference pairs: two completions of a prompt with different rewards."""
        with self.db.read() as session:
            rows, following = jobs.pairs(session, job_id, **query.model_dump())
        return Page(data=tuple(map(PreferencePair.model_validate, rows)), next=following)

    def compare(
        self,
        a: int,
        b: int,
        *,
        by: By = None,
    ) -> JobComparison:
        """Compare job ``b`` with job ``a`` on the completions, or else the prompts, that both scored."""
        with self.db.read() as session:
            return comparing.compare(session, a, b, by=by)

    def cancel(self, job_id: int) -> StoredJob:
        """Cancel a job. Scored items keep their rewards."""
        with self.db.write() as session:
            jobs.cancel(session, job_id)
        return self._load(job_id)

    @takes(RescoreQuery)
    def rescore(self, job_id: int, query: RescoreQuery) -> StoredJob:
        """Score a job's completions under the newest approved version of its rubrics, as a new job.

        Stored verdicts are reused: after a change of weights or of ``min_coverage`` no judge is asked.
        """
        with self.db.write() as session:
            job = jobs.rescore(session, job_id, **query.model_dump())
            is_new = job.id != job_id and PUBLISHED in session.info
        return self._load(job.id, is_new=is_new)

    @takes(RetryRequest)
    def retry(self, job_id: int, query: RetryRequest) -> RetriedJob:
        """Score failed and cancelled items again. Scored verdicts are kept and not asked again."""
        with self.db.write() as session:
            reopened = jobs.retry(session, job_id, budget=query.budget)
        return RetriedJob(reopened=reopened, job=self._load(job_id))

    def _load(self, job_id: int, *, summary: bool = False, is_new: bool = False) -> StoredJob:
        """Return a job with its progress. A summary reads every verdict: not inside a write transaction."""
        with self.db.read() as session:
            job = jobs.get(session, job_id)
            results = jobs.summary(session, job_id) if summary or job.finished_at else None
            running = None if job.finished_at else workers.running(session)
            progress = jobs.progress(session, job_id)
            return _of(job, workers=running, progress=progress, summary=results, is_new=is_new)


def _of(row: JobRow, **fields: object) -> StoredJob:
    missing = {"judge": row.judge.name, "workers": None, "progress": None, "summary": None, "is_new": False}
    return StoredJob.of(row, **(missing | fields))
