"""A circuit breaker: a server that is down is left alone, and asked again once it gives a sign of life.

::

    closed ──8 failures in a row──▶ open ──probe answers, and one call goes through──▶ closed

A failure is a call that brought nothing: no connection, a status of 5xx, no answer in time. Any answer, a refusal too,
begins the count anew. While the circuit is open, calls wait: the first in line looks after the server
(``GET /models``), and tries its own call when that answers. So an outage of a minute costs a minute and no verdict.
``outage_timeout_s`` after the outage began they fail as ``unavailable``, and later ones at once, until the server is
back; but none fails while a look is under way, which may take as long as a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from structlog import get_logger

from rubricsvc.core.verdict import Reason
from workers.engines.base import Failure
from workers.engines.http.transport import RequestFailed

T = TypeVar("T")
Call = Callable[[], Awaitable[T | RequestFailed]]

FAILURES = 8
"""In a row, over all questions, without one answer between them."""

_DOWN = (Reason.UNREACHABLE, Reason.SERVER_ERROR, Reason.TIMEOUT)
_OURS = (Reason.BUDGET, Reason.ENGINE_ERROR)
"""The call was not made."""

_LONGEST_PAUSE_S = 8.0

log = get_logger(__name__)


class Breaker:
    """``alive`` is the probe; ``name`` says in the log whose server it is."""

    def __init__(
        self, alive: Callable[[], Awaitable[bool]], *, name: str, outage_timeout_s: float, first_pause_s: float = 0.5
    ) -> None:
        self._alive = alive
        self._name = name
        self._timeout_s = outage_timeout_s
        self._first_pause_s = first_pause_s
        self._failures = 0
        self._door = asyncio.Lock()  # who holds it looks after the server
        self._look: asyncio.Future[bool] | None = None  # under way; whether it found the server down
        self._opened_at: float | None = None
        self._pause_s = first_pause_s
        self._look_at = 0.0
        self._why = ""

    async def call(self, call: Call[T]) -> T | RequestFailed:
        """What ``call`` gives; where the server is down, once it is back, or ``unavailable``."""
        while self._opened_at is not None:
            outcome = await self._waiting(call)
            if outcome is not None:
                return outcome
        return self._note(await call())

    async def _waiting(self, call: Call[T]) -> T | RequestFailed | None:
        """None where the circuit has closed, or has to be looked at again."""
        try:
            async with asyncio.timeout(self._left()):
                await self._door.acquire()
        except TimeoutError:
            if self._look is not None and not await asyncio.shield(self._look):
                return None
            return None if self._opened_at is None else self._unavailable()
        try:
            if self._opened_at is None:
                return None
            wait, left = self._look_at - time.monotonic(), self._left()
            if wait > left:
                await asyncio.sleep(left)
                return self._unavailable()
            if wait > 0:
                await asyncio.sleep(wait)
            return await self._looking(call)
        finally:
            self._door.release()

    async def _looking(self, call: Call[T]) -> T | RequestFailed | None:
        """Look after the server: the probe, and then the call."""
        look = self._look = asyncio.get_running_loop().create_future()
        down = False  # a look that is cancelled says nothing
        try:
            if not await self._alive():
                down = True
                return None
            outcome = await call()
            down = self._says(outcome) is False
            return self._note(outcome)
        finally:
            if down:
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
                self._look_at = time.monotonic() + self._pause_s
            self._look = None
            look.set_result(down)

    def _left(self) -> float:
        """Seconds of patience."""
        return max(0.0, (self._opened_at or 0.0) + self._timeout_s - time.monotonic())

    def _unavailable(self) -> RequestFailed:
        return RequestFailed(Failure(Reason.UNAVAILABLE, f"not asked, the server is down: {self._why}"))

    @staticmethod
    def _says(outcome: T | RequestFailed) -> bool | None:
        """Whether the server is up, by this outcome; None where it tells nothing of the server."""
        if not isinstance(outcome, RequestFailed) or 400 <= outcome.status < 500:
            return True
        return None if outcome.failure.reason in _OURS else outcome.failure.reason not in _DOWN

    def _note(self, outcome: T | RequestFailed) -> T | RequestFailed:
        up = self._says(outcome)
        if up:
            if self._opened_at is not None:
                log.info("the judge's server answers again", model=self._name)
            self._failures, self._opened_at = 0, None
        elif up is False and isinstance(outcome, RequestFailed):
            self._failed(outcome.failure.detail)
        return outcome

    def _failed(self, why: str) -> None:
        self._failures += 1
        self._why = why
        if self._failures >= FAILURES and self._opened_at is None:
            self._opened_at = time.monotonic()
            self._pause_s = self._first_pause_s
            self._look_at = self._opened_at + self._pause_s
            log.warning(
                "the judge's server is down; calls wait",
                model=self._name,
                outage_timeout_s=self._timeout_s,
                why=self._why,
            )
