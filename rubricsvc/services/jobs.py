"""`Jobs`: batches of work, as completions to score or prompts to give rubrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from sqlalchemy.exc import IntegrityError

from rubricsvc.errors import cut
from rubricsvc.queries import ItemFilters, JobFilters, JobQuery, RescoreQuery
from rubricsvc.schemas import Item, NewJob, Page, RetriedJob, RetryRequest, StoredJob
from rubricsvc.schemas.jobs import JobComparison, PairedBy
from rubricsvc.schemas.methods import takes
from rubricsvc.schemas.waiting import WAIT_SECONDS, Notify, OnProgress, polling
from rubricsvc.services import comparing
from rubricsvc.services.job_hints import hints
from rubricsvc.services.submitting import Selection, select, veto_warning, with_rubrics
from rubricsvc.services.waiting import POLL_SECONDS, answered
from rubricsvc.store import completions, items, jobs, judges, rubrics, workers
from rubricsvc.store.session import PUBLISHED, Database
from rubricsvc.store.verdicts import for_items

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.schemas.jobs import ExportCounts, ExportQuery
    from rubricsvc.services.importing import ImportResult
    from rubricsvc.stats import OnProgress as OnCount
    from rubricsvc.store.tables import JobRow


log = logging.getLogger(__name__)


By = Annotated[PairedBy | None, Field(description="What to pair; by default completions, else prompts.")]


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, whether it is new, and what was left out of it."""

    job_id: int
    is_new: bool
    notes: tuple[str, ...]


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
                submitted = self.submit_in(session, new)
        except IntegrityError:
            with self.db.read() as session:
                for item in new.items or ():
                    completions.get(session, item.completion_id)  # raises NotFoundError for an unknown one
            raise
        return self.submitted(submitted)

    def submit_in(self, session: Session, new: NewJob, imported: ImportResult | None = None) -> Submission:
        """Submit completions in a session to write in, those of a file if it was imported there; see `submit`."""
        judge = judges.get(session, new.judge)
        if new.items is not None:
            found = Selection(with_rubrics(session, new.items, allow_drafts=new.allow_drafts))
        else:
            found = select(session, new, imported)
        notes = []
        if found.no_rubric:
            why = f"rubric {new.rubric!r} is for another prompt" if new.rubric else "no approved rubric of their prompt"
            notes.append(f"completions left out: {found.no_rubric}, {why}")
        if found.drafts:
            notes.append(f"not approved: {cut(', '.join(found.drafts), 200)}; use such rubrics with --allow-drafts")
        if judge.value.mode == "comparative":
            required = rubrics.judged_required(session, (rubric_id for _, rubric_id in found.pairs))
            if warning := veto_warning(judge.value, required):
                notes.append(f"warning: {warning}")
        options = new.model_dump(include={"key", "name", "budget", "min_coverage", "allow_drafts"})
        job = jobs.submit(session, judge_id=judge.id, items=found.pairs, **options)
        return Submission(job.id, PUBLISHED in session.info, tuple(notes))  # only a new job is published

    def submitted(self, submission: Submission) -> StoredJob:
        """Return the job of a submission, once its session is committed."""
        job = self._load(submission.job_id, is_new=submission.is_new)
        return job.model_copy(update={"notes": submission.notes})

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

    def report(self, job_id: int, *, completions: int = 10, on_progress: OnCount = lambda *_: None) -> str:
        """Return the report of a job, an HTML page with so many ``completions`` in each list."""
        from rubricsvc.services.job_results import read_results
        from rubricsvc.web.jobs import render_job

        return render_job(read_results(self.db, job_id, extremes=completions, on_progress=on_progress))

    def export(self, job_id: int, query: ExportQuery, counts: ExportCounts) -> Iterator[list[dict[str, Any]]]:
        """Yield rows of rewards and verdicts, or examples for trainers, in pages; ``counts`` counts them."""
        from rubricsvc.services import exporting

        return exporting.pages(self.db, job_id, query, counts)

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
            _ = jobs.get(session, job_id).judge.value  # an invalid judge raises before a job is stored
            job = jobs.rescore(session, job_id, **query.model_dump())
            is_new = job.id != job_id and PUBLISHED in session.info
        return self._load(job.id, is_new=is_new)

    @takes(RetryRequest)
    def retry(self, job_id: int, query: RetryRequest) -> RetriedJob:
        """Score failed and cancelled items again. Scored verdicts are kept and not asked again."""
        with self.db.write() as session:
            _ = jobs.get(session, job_id).judge.value  # an invalid judge raises before an item is reopened
            reopened = jobs.retry(session, job_id, budget=query.budget)
        return RetriedJob(reopened=reopened, job=self._load(job_id))

    def _load(self, job_id: int, *, summary: bool = False, is_new: bool = False) -> StoredJob:
        """Return a job with its progress. A summary reads every verdict: not inside a write transaction."""
        with self.db.read() as session:
            job = jobs.get(session, job_id)
            results = jobs.summary(session, job_id) if summary or job.finished_at else None
            running = None if job.finished_at else workers.running(session)
            progress = jobs.progress(session, job_id)
            advice = hints(session, job, progress, results) if results is not None else ()
            return _of(job, workers=running, progress=progress, summary=results, is_new=is_new, hints=advice)


def _of(row: JobRow, **fields: object) -> StoredJob:
    missing: dict[str, object] = {"judge": row.judge.name, "workers": None, "progress": None, "summary": None}
    missing |= {"is_new": False, "notes": (), "hints": ()}
    return StoredJob.of(row, **(missing | fields))
