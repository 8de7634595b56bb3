"""A circuit breaker: calls to a server that is down wait until it answers again.

::

    closed ──8 failures in a row──▶ open ──the server answers a probe, and one call succeeds──▶ closed

A failure is a call that brought nothing: no connection, a status of 5xx, no response in time. Any other response, a
refusal included, resets the count. While the circuit is open, calls wait; every few seconds one of them probes the
server (``GET /models``) and, when that answers, makes its own call as a trial. So an outage of a minute costs a minute
and no verdict. ``outage_timeout_s`` after it began waiting calls fail as ``unavailable``, and later ones at once, until
a trial succeeds; calls that arrive during a trial wait for its result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from structlog import get_logger

from rubricsvc.core.verdict import Reason
from workers.engines.base import Failure, Outcome, RequestFailed, Send

FAILURE_THRESHOLD = 8
"""Failures in a row, over all calls, that open the circuit."""

DOWN = (Reason.UNREACHABLE, Reason.SERVER_ERROR, Reason.TIMEOUT)
_MAX_PROBE_PAUSE_S = 4.0
_NOT_SENT = (Reason.BUDGET, Reason.ENGINE_ERROR)

log = get_logger(__name__)


class Breaker:
    """The circuit breaker of one server: that of the model ``name``. ``probe`` returns whether the server answers.

    The first probe is after ``first_pause_s``; later pauses grow with the outage.
    """

    def __init__(
        self, probe: Callable[[], Awaitable[bool]], *, name: str, outage_timeout_s: float, first_pause_s: float = 0.5
    ) -> None:
        self._probe = probe
        self.name = name
        self._outage_timeout_s = outage_timeout_s
        self._first_pause_s = first_pause_s
        self._failures = 0
        self._opened_at = 0.0
        self._probe_at = 0.0
        self._trial = asyncio.Lock()
        self._last_error = ""
        self.is_open = False

    async def call(self, send: Send) -> Outcome:
        """Return the outcome of ``send``, called once the server is up, or ``unavailable``."""
        while self.is_open:
            now = time.monotonic()
            if now >= self._probe_at:
                async with self._trial:
                    if self.is_open and now >= self._probe_at:  # no other trial has ended meanwhile
                        if await self._probe():
                            return self._record(await send())
                        self._postpone_probe()
            elif (left := self._opened_at + self._outage_timeout_s - now) > 0:
                await asyncio.sleep(min(left, self._probe_at - now))
            else:
                return RequestFailed(Failure(Reason.UNAVAILABLE, f"not sent, the server is down: {self._last_error}"))
        return self._record(await send())

    def _record(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, RequestFailed) or _is_answer(outcome):
            if self.is_open:
                log.info("the judge's server answers again", model=self.name)
            self._failures, self.is_open = 0, False
        elif outcome.failure.reason in DOWN:
            self._failures += 1
            self._last_error = outcome.failure.detail
            if self._failures >= FAILURE_THRESHOLD:
                self._open()
        return outcome

    def _open(self) -> None:
        if not self.is_open:
            self.is_open, self._opened_at = True, time.monotonic()
            timeout_s, error = self._outage_timeout_s, self._last_error
            event = "the judge's server is down; calls " + ("wait" if timeout_s else "fail")
            log.warning(event, model=self.name, outage_timeout_s=timeout_s, error=error)
        self._postpone_probe()

    def _postpone_probe(self) -> None:
        now = time.monotonic()
        self._probe_at = now + min(_MAX_PROBE_PAUSE_S, max(self._first_pause_s, now - self._opened_at))


def _is_answer(failed: RequestFailed) -> bool:
    return 400 <= failed.status < 500 or failed.failure.reason not in (*DOWN, *_NOT_SENT)
