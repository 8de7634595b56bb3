"""The wait for a job, which every transport has: when to read it again, and what to tell the person who waits."""

import logging
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import parsedate_to_datetime

from rubricsvc.schemas.jobs import StoredJob

log = logging.getLogger(__name__)

REMIND_SECONDS = 60.0
WAIT_SECONDS = 3600.0  # the default ``timeout`` of a wait

OnProgress = Callable[[StoredJob], None]
Notify = Callable[[str], None]  # receives messages for the person who waits


def retry_after_s(header: str) -> float | None:
    """Return the seconds that a ``Retry-After`` asks to wait, given as a number or as an HTTP date; else None."""
    with suppress(ValueError):
        seconds = float(header)
        return seconds if seconds >= 0 else None
    with suppress(ValueError, OverflowError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    return None


def no_worker(job_id: int) -> str:
    """Return the message that no worker is running, with the ways to have the job scored."""
    here = f", or score here: `RUBRICSVC_BROKER_URL=memory:// rubricsvc jobs wait {job_id}`"
    return (
        f"No worker is running, and job {job_id} waits for one. Start one with `rubricsvc serve` or `rubricsvc worker`"
        f"{'' if 'RUBRICSVC_URL' in os.environ else here}."
    )


def polling(
    job_id: int, timeout: float | None, on_progress: OnProgress | None, notify: Notify, *, longest: float = 2.0
) -> Callable[[StoredJob], float | None]:
    """Return what a wait calls with the job each time it has read it: the seconds until the next time, None at its end.

    It calls ``on_progress`` with the job, and while no worker is running ``notify``, at once and once a minute.
    ``longest`` is the longest delay. It raises a TimeoutError if the job, which goes on, is not finished after
    ``timeout`` seconds (None: no limit).
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    delay, remind_at = 0.0, -math.inf

    def next_delay(job: StoredJob) -> float | None:
        nonlocal delay, remind_at
        if on_progress is not None:
            on_progress(job)
        if job.finished:
            return None
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
        delay = min(longest, end - now, delay * 1.5 or 0.02)
        return delay

    return next_delay
