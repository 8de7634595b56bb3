"""Waiting for a job, with a worker of the caller where no other worker can receive it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from sqlalchemy import make_url

from rubricsvc.broker import MEMORY, check_broker
from rubricsvc.core.jobs import JobProgress
from rubricsvc.core.judge import Judge
from rubricsvc.core.worker_watch import WorkerWatch
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs, workers
from rubricsvc.store.session import AWAY, Database

OPEN = ("queued", "in_progress")
FIRST_POLL_SECONDS = 0.02
POLL_SECONDS = 0.3

Result = TypeVar("Result")
Notify = Callable[[str], None]
"""Receives messages for the person who waits."""


@contextmanager
def ensure_worker(
    db: Database, job_id: int, start_worker: Callable[[Judge], AbstractContextManager[None]], notify: Notify
) -> Iterator[None]:
    """Run a worker for an open job inside the block, if the broker stays in this process.

    Raises:
        NotFoundError: no such job.
    """
    with db.read() as session:
        job = jobs.get(session, job_id)
        is_open = job.status in OPEN
        judge = job.judge.value if is_open and db.on_commit is None else None
    if judge is not None:
        with start_worker(judge):
            yield
        return
    if is_open:
        try:
            check_broker(get_settings().broker_url)
        except UnavailableError as error:
            notify(f"{error.message}; job {job_id} is stored and waits for a worker")
            notify(f"hint: start it, or score here: RUBRICSVC_BROKER_URL=memory:// rubricsvc jobs wait {job_id}")
    yield


def no_worker(db: Database, job_id: int) -> str:
    """Return the message that no worker scores a job, with the ways to have it scored."""
    if get_settings().broker_url.startswith(MEMORY):
        remedy = f"Start one with `rubricsvc serve`, or score here: `rubricsvc jobs wait {job_id}`."
    else:
        here = f"`RUBRICSVC_BROKER_URL=memory:// rubricsvc jobs wait {job_id}`"
        remedy = f"Start one with `rubricsvc worker`, or score here: {here}."
    return f"No worker is running on the database {make_url(db.url).render_as_string()}. {remedy}"


def follow(db: Database, job_id: int, notify: Notify = lambda _: None) -> Iterator[JobProgress]:
    """Yield the job's progress until it has ended, at last every ``POLL_SECONDS``; say so where no worker is running.

    Raises:
        NotFoundError: no such job.
        UnavailableError: as of `answered`.
    """

    def read() -> tuple[bool, JobProgress, int]:
        with db.read() as session:
            is_open = jobs.get(session, job_id).status in OPEN
            return is_open, jobs.progress(session, job_id), workers.running(session)

    is_open, watch, delay = True, WorkerWatch(), FIRST_POLL_SECONDS
    while is_open:
        is_open, progress, running = answered(read, notify)
        notice = watch.notice(running, time.monotonic()) if is_open else None
        if notice is not None:
            notify(no_worker(db, job_id) if notice == "missing" else "A worker is running.")
        yield progress
        if is_open:
            time.sleep(delay)
            delay = min(POLL_SECONDS, 1.5 * delay)


def answered(query: Callable[[], Result], notify: Notify, *, hint: str = "") -> Result:
    """Return the result of a query, which is repeated while the database does not answer; say so once.

    Raises:
        UnavailableError: the database did not answer for `Settings.outage_seconds`; with this ``hint``.
    """
    end: float | None = None
    while True:
        try:
            result = query()
        except AWAY as error:
            limit, now = get_settings().outage_seconds, time.monotonic()
            if now >= (now + limit if end is None else end):
                raise _no_answer(error, hint) from error
            if end is None:
                end = now + limit
                notify(f"the database does not answer, retrying for {limit:g} s: {_reason(error)}")
            time.sleep(POLL_SECONDS)
        else:
            if end is not None:
                notify("the database answers again")
            return result


async def wait(db: Database, job_id: int, seconds: float) -> None:
    """Wait until a job is finished, for at most some seconds."""
    end, delay = time.monotonic() + seconds, FIRST_POLL_SECONDS
    while not await asyncio.to_thread(_finished, db, job_id) and (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(delay, left))
        delay = min(POLL_SECONDS, delay * 1.5)


def _finished(db: Database, job_id: int) -> bool:
    with db.read() as session:
        return jobs.get(session, job_id).finished_at is not None


@contextmanager
def reachable() -> Iterator[None]:
    """Raise an UnavailableError where the database does not answer."""
    try:
        yield
    except AWAY as error:
        raise _no_answer(error) from error


def _no_answer(error: Exception, hint: str = "") -> UnavailableError:
    return UnavailableError(f"the database does not answer: {_reason(error)}", hint=hint)


def _reason(error: Exception) -> str:
    return str(getattr(error, "orig", error)).splitlines()[0]
