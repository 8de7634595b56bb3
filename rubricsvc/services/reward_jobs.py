"""Jobs that their submitter waits for: prompts, rubrics and completions given as values, a step at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import ConflictError
from rubricsvc.services.editing import Edit
from rubricsvc.services.rewarding import Batch, ItemKey, store
from rubricsvc.services.waiting import Notify, follow, reachable
from rubricsvc.store import items, jobs, judges, verdicts, workers
from rubricsvc.store.tables import COMPLETED

if TYPE_CHECKING:
    from rubricsvc.core.judge import Judge
    from rubricsvc.store.session import Database

NO_WORKER_SECONDS = 60.0
"""How long a job without a running worker is waited for."""


@dataclass(frozen=True, slots=True)
class SubmittedStep:
    """The job of a step, and the item of each of its completions; equal completions are one item."""

    id: int
    items: Sequence[ItemKey]


@dataclass(frozen=True, slots=True)
class GradedItem:
    """The result of an item; see `tables.ItemRow`."""

    id: int
    state: str
    reward: float | None
    coverage: float | None
    formula: str | None
    vetoed_by: str | None
    null_reason: str | None
    verdicts: tuple[Verdict, ...]


def job_name(run: str, step: int | None, evaluated: str | None = None) -> str:
    """Return the name of the job of a run's step (from 0), or of the score of an evaluation after so many steps."""
    if step is None:
        return run
    return f"{run} step {step + 1}" if evaluated is None else f"{run} eval step {step}, {evaluated}"


def job_key(
    run: str, step: int | None, judge_id: int, keys: Sequence[Sequence[object]], evaluated: str | None = None
) -> str:
    """Return the idempotency key of such a job: a step or an evaluation that is repeated finds its job."""
    return digest(run, step, judge_id, keys, *([] if evaluated is None else [evaluated]))


def check_same_judge(now: Judge, pinned: Judge | str) -> None:
    """Raise a ConflictError if a judge is not the one that a run began with, given as a value or by its digest."""
    before = pinned if isinstance(pinned, str) else pinned.digest
    if now.digest != before:
        raise ConflictError(
            f"judge {now.name!r} was replaced: the run began with {before[:8]}, now it is {now.digest[:8]}",
            hint="give the new judge another name and start another run; or restore the judge and use --resume",
        )


class RewardJobs:
    """Submits steps as jobs of a database, waits for them, and reads their rewards.

    Args:
        db: The database; its workers score.
        notify: Receives messages while a job waits, such as that no worker is running.
    """

    def __init__(self, db: Database, notify: Notify = lambda _: None) -> None:
        self._db, self._notify = db, notify

    @property
    def address(self) -> str:
        """The address of the database."""
        return self._db.url

    def submit(
        self,
        judge: Judge,
        batch: Batch,
        *,
        run: str,
        step: int | None,
        evaluated: str | None = None,
        allow_drafts: bool = False,
        retry: bool = True,
    ) -> SubmittedStep:
        """Store a step's values, and submit its job in the same transaction, or find the job that it has.

        ``evaluated`` is the score of an evaluation, if that is what is scored. With ``retry``, the failed and cancelled
        items of a job that has ended are asked about again.

        Raises:
            ConflictError: The judge of this name is another one now.
            NotFoundError: There is no judge of this name any more.
            NotApprovedError: A rubric is a draft, and drafts are not allowed.
            UnavailableError: The database does not answer.
        """
        with reachable(), self._db.write() as session:
            row = judges.get(session, judge.name)
            check_same_judge(row.value, judge)
            keys = store(session, batch, Edit(policy="none"))
            distinct = sorted(set(keys))
            job = jobs.submit(
                session,
                judge_id=row.id,
                items=distinct,
                key=job_key(run, step, row.id, distinct, evaluated),
                name=job_name(run, step, evaluated),
                allow_drafts=allow_drafts,
            )
            if retry and job.finished_at is not None and job.status != COMPLETED:
                jobs.retry(session, job.id)
            job_id = job.id
        return SubmittedStep(job_id, keys)

    def wait(self, job_id: int, timeout: float) -> str | None:
        """Wait until a job has ended; return None, or why it is waited for no longer.

        After ``timeout`` seconds it is cancelled. Without a running worker for `NO_WORKER_SECONDS` it stays as it is.

        Raises:
            UnavailableError: The database did not answer for a while.
        """
        served_at = began = time.monotonic()
        for _ in follow(self._db, job_id, self._notify):
            now = time.monotonic()
            with reachable(), self._db.read() as session:
                served_at = now if workers.running(session) else served_at
            if now - served_at > NO_WORKER_SECONDS:
                return f"no worker is running; job {job_id} waits for one"
            if now - began > timeout:
                with reachable(), self._db.write() as session:
                    jobs.cancel(session, job_id)
                return f"cancelled: job {job_id} is not finished after {timeout:g} s"
        return None

    def results(self, job_id: int) -> dict[ItemKey, GradedItem]:
        """Return the items of a job with their verdicts.

        Raises:
            UnavailableError: The database does not answer.
        """
        names = ("state", "reward", "coverage", "formula", "vetoed_by", "null_reason")
        with reachable(), self._db.read() as session:
            rows = items.rewards(session, job_id)
            found = verdicts.for_items(session, [row.item_id for row in rows])
        return {
            (row.completion_id, row.rubric_id): GradedItem(
                row.item_id, **{name: getattr(row, name) for name in names}, verdicts=tuple(found.get(row.item_id, ()))
            )
            for row in rows
        }
