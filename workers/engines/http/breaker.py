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
from typing import TypeVar

from structlog import get_logger

from rubricsvc.core.verdict import Reason
from workers.engines.base import Failure, RequestFailed

T = TypeVar("T")
Call = Callable[[], Awaitable[T | RequestFailed]]

FAILURE_THRESHOLD = 8
"""Failures in a row, over all calls, that open the circuit."""

_MAX_PROBE_PAUSE_S = 8.0
_DOWN = (Reason.UNREACHABLE, Reason.SERVER_ERROR, Reason.TIMEOUT)
_NOT_SENT = (Reason.BUDGET, Reason.ENGINE_ERROR)

log = get_logger(__name__)


class Breaker:
    """The circuit breaker of one server.

    Args:
        probe: Returns whether the server answers.
        name: The server's model, for the log.
        outage_timeout_s: Seconds after the begin of an outage for which calls wait.
        first_pause_s: Seconds until the first probe; doubled after each failed one.
    """

    def __init__(
        self, probe: Callable[[], Awaitable[bool]], *, name: str, outage_timeout_s: float, first_pause_s: float = 0.5
    ) -> None:
        self._probe = probe
        self._name = name
        self._outage_timeout_s = outage_timeout_s
        self._first_pause_s = self._pause_s = first_pause_s
        self._failures = 0
        self._opened_at = 0.0
        self._probe_at = 0.0
        self._trial = asyncio.Lock()
        self._last_error = ""
        self.is_open = False

    async def call(self, call: Call[T]) -> T | RequestFailed:
        """Return the outcome of ``call``, made once the server is up, or ``unavailable``."""
        while self.is_open:
            now = time.monotonic()
            if now >= self._probe_at:
                async with self._trial:
                    if self.is_open and now >= self._probe_at:  # no other trial has ended meanwhile
                        outcome = await self._try(call)
                        if outcome is not None:
                            return outcome
            elif (left := self._opened_at + self._outage_timeout_s - now) > 0:
                await asyncio.sleep(min(left, self._probe_at - now))
            else:
                return RequestFailed(Failure(Reason.UNAVAILABLE, f"not sent, the server is down: {self._last_error}"))
        return self._record(await call())

    async def _try(self, call: Call[T]) -> T | RequestFailed | None:
        """Probe the server, then make ``call`` as a trial; None where the probe failed."""
        outcome = self._record(await call()) if await self._probe() else None
        if outcome is None or _is_up(outcome) is False:
            self._pause_s = min(2 * self._pause_s, _MAX_PROBE_PAUSE_S)
            self._probe_at = time.monotonic() + self._pause_s
        return outcome

    def _record(self, outcome: T | RequestFailed) -> T | RequestFailed:
        up = _is_up(outcome)
        if up:
            if self.is_open:
                log.info("the judge's server answers again", model=self._name)
            self._failures, self.is_open = 0, False
        elif up is False and isinstance(outcome, RequestFailed):
            self._failures += 1
            self._last_error = outcome.failure.detail
            if self._failures >= FAILURE_THRESHOLD and not self.is_open:
                self._open()
        return outcome

    def _open(self) -> None:
        self.is_open = True
        self._opened_at = time.monotonic()
        self._pause_s = self._first_pause_s
        self._probe_at = self._opened_at + self._pause_s
        log.warning(
            "the judge's server is down; calls wait",
            model=self._name,
            outage_timeout_s=self._outage_timeout_s,
            error=self._last_error,
        )


def _is_up(outcome: object) -> bool | None:
    """Return whether the server is up by this outcome; None where the outcome says nothing about the server."""
    if not isinstance(outcome, RequestFailed) or 400 <= outcome.status < 500:
        return True
    return None if outcome.failure.reason in _NOT_SENT else outcome.failure.reason not in _DOWN
