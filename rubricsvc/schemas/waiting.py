"""Waiting for a job, as the service in this process and its clients do: `polling` decides, they read and sleep."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator

from rubricsvc.schemas.jobs import StoredJob

log = logging.getLogger(__name__)

FIRST_POLL_SECONDS = 0.02
REMIND_SECONDS = 60.0
WAIT_SECONDS = 3600.0
"""The default ``timeout`` of a wait."""

OnProgress = Callable[[StoredJob], None]
Notify = Callable[[str], None]
"""Receives messages for the person who waits."""


def no_worker(job_id: int) -> str:
    """Return the message that no worker is running, with the ways to have the job scored."""
    here = f"RUBRICSVC_BROKER_URL=memory:// rubricsvc jobs wait {job_id}"
    return (
        f"No worker is running, and job {job_id} waits for one. Start one with `rubricsvc serve` or `rubricsvc worker`,"
        f" or score here: `{here}`."
    )


def polling(
    job_id: int,
    timeout: float | None,
    on_progress: OnProgress | None = None,
    notify: Notify = log.warning,
    *,
    longest: float = 2.0,
) -> Generator[float, StoredJob, StoredJob]:
    """Wait for a job: yield the seconds until it is to be read again, be sent the job, and return it once finished.

    While no worker is running, ``notify`` is called at once and once a minute; ``longest`` is the longest delay.

    Raises:
        TimeoutError: The job is not finished after ``timeout`` seconds (None: no limit). It goes on.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    delay, remind_at = 0.0, -math.inf
    while True:
        job = yield delay
        if on_progress is not None:
            on_progress(job)
        if job.finished:
            return job
        now = time.monotonic()
        if job.workers and remind_at > -math.inf:
            remind_at = -math.inf
            notify("A worker is running.")
        elif job.workers == 0 and now >= remind_at:
            remind_at = now + REMIND_SECONDS
            notify(no_worker(job_id))
        if now >= end:
            reason = "" if job.workers else f": {no_worker(job_id)}"
            raise TimeoutError(f"job {job_id} is not finished after {timeout:g} s{reason}")
        delay = min(longest, end - now, delay * 1.5 or FIRST_POLL_SECONDS)
