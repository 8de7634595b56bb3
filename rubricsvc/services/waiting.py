"""Waiting for a job, with a worker of the caller where no other worker can receive it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from rubricsvc.core.judge import Judge
from rubricsvc.errors import UnavailableError
from rubricsvc.schemas.waiting import Notify
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs
from rubricsvc.store.session import AWAY, Database

OPEN = ("queued", "in_progress")
POLL_SECONDS = 0.3

Result = TypeVar("Result")


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
            from rubricsvc.broker import check_broker  # Celery, which other commands do not need

            check_broker(get_settings().broker_url)
        except UnavailableError as error:
            notify(f"{error.message}; job {job_id} is stored and waits for a worker")
            notify(f"hint: start it, or score here: RUBRICSVC_BROKER_URL=memory:// rubricsvc jobs wait {job_id}")
    yield


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
