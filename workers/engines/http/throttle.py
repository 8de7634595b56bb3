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
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace

from structlog import get_logger

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import RAW_CHARS, Reason
from rubricsvc.errors import cut
from workers.engines.base import Failure, Outcome, RequestFailed, Send
from workers.engines.budget import charge

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
        if (
            not isinstance(outcome, RequestFailed)
            or 400 <= outcome.status < 500  # a refusal is an answer
            or outcome.failure.reason not in (*DOWN, *_NOT_SENT)
        ):
            if self.is_open:
                log.info("the judge's server answers again", model=self.name)
            self._failures, self.is_open = 0, False
        elif outcome.failure.reason in DOWN:
            self._failures += 1
            self._last_error = outcome.failure.detail
            if self._failures >= FAILURE_THRESHOLD:
                if not self.is_open:
                    self.is_open, self._opened_at = True, time.monotonic()
                    timeout_s, error = self._outage_timeout_s, self._last_error
                    event = "the judge's server is down; calls " + ("wait" if timeout_s else "fail")
                    log.warning(event, model=self.name, outage_timeout_s=timeout_s, error=error)
                self._postpone_probe()
        return outcome

    def _postpone_probe(self) -> None:
        now = time.monotonic()
        self._probe_at = now + min(_MAX_PROBE_PAUSE_S, max(self._first_pause_s, now - self._opened_at))


_ALWAYS_WAITED_S = 30.0
"""A ``Retry-After`` up to this is waited for without an outage time, too: the server is not down."""

_WARN_PAUSE_S = 5.0
_MAX_BACKOFF_S = 8.0

_OVERLOAD = (Reason.RATE_LIMITED, *DOWN)


class AdaptiveConcurrency:
    """A limit of calls in progress (``async with``), at most ``maximum``: additive increase, multiplicative decrease.

    It starts at the maximum; each round of successful calls adds one, a round with an overloaded call halves it.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._limit = float(maximum)
        self._halved_at = float("-inf")
        self._semaphore = asyncio.Semaphore(maximum)
        self._surplus = 0  # permits over the limit, withdrawn as they come back

    @property
    def limit(self) -> int:
        """The current limit."""
        return int(self._limit)

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def succeeded(self) -> None:
        """Count a successful call."""
        before = self.limit
        self._limit = min(self._maximum, self._limit + 1 / self._limit)
        if self.limit > before:
            self._release()

    def overloaded(self, began: float) -> None:
        """Count a call that failed under load; one that ``began`` before the last halving says nothing of the limit."""
        if began >= self._halved_at:
            before = self.limit
            self._halved_at = time.monotonic()
            self._limit = max(1.0, self._limit / 2)
            self._surplus += before - self.limit

    def _release(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._semaphore.release()


class RateLimiter:
    """At most ``maximum`` calls started within any ``period_s``, first come first served.

    A leaky bucket, as in aiolimiter, would let twice the maximum through in its first period.
    """

    def __init__(self, maximum: int, period_s: float = 60.0) -> None:
        self._period_s = period_s
        self._started: deque[float] = deque([float("-inf")] * maximum, maxlen=maximum)
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Wait until a call may start."""
        async with self._turn:
            while (left := self._started[0] + self._period_s - time.monotonic()) > 0:
                await asyncio.sleep(left)
            self._started.append(time.monotonic())


class Throttle:
    """The limits that all calls of one engine share. Waiting uses up none of a call's retries.

    All calls wait for a ``Retry-After`` of at most the endpoint's ``outage_timeout_s``; a longer one fails its call.
    ``first_pause_s`` is the pause before a call's first retry; it is doubled for each further one.
    """

    def __init__(self, endpoint: Endpoint, breaker: Breaker, *, first_pause_s: float) -> None:
        self.concurrency = AdaptiveConcurrency(endpoint.concurrency)
        self._breaker = breaker
        self._max_retries = endpoint.max_retries
        self._price = endpoint.price
        self._first_pause_s = first_pause_s
        self._max_pause_s = max(endpoint.outage_timeout_s, _ALWAYS_WAITED_S)
        self._paused_until = 0.0
        self._requests = RateLimiter(endpoint.requests_per_minute) if endpoint.requests_per_minute else None

    async def call(self, send: Send, max_cost: float) -> Outcome:
        """Return the outcome of ``send``, a call that costs at most ``max_cost``, with the endpoint's retries."""
        for attempt in range(self._max_retries + 1):
            async with self.concurrency:
                outcome = await self._breaker.call(lambda: self._limited(send, max_cost))
            if not isinstance(outcome, RequestFailed) or not outcome.retry or attempt == self._max_retries:
                break
            if (wait_s := outcome.retry_after_s or 0.0) > self._max_pause_s:
                detail = cut(f"{outcome.failure.detail}; Retry-After: {wait_s:g} s", RAW_CHARS)
                return replace(outcome, failure=replace(outcome.failure, detail=detail))
            if outcome.retry_after_s is None:  # else all calls wait
                pause_s = min(_MAX_BACKOFF_S, self._first_pause_s * 2**attempt)
                await asyncio.sleep(pause_s * random.uniform(0.75, 1.0))
        return outcome

    async def _limited(self, send: Send, max_cost: float) -> Outcome:
        while (left := self._paused_until - time.monotonic()) > 0:
            await asyncio.sleep(left)
        if self._requests:
            await self._requests.start()
        began = time.monotonic()
        outcome = await charge(send, max_cost, self._price)
        if not isinstance(outcome, RequestFailed):
            self.concurrency.succeeded()
        elif outcome.failure.reason in _OVERLOAD:
            self.concurrency.overloaded(began)
            if (pause_s := outcome.retry_after_s or 0.0) <= self._max_pause_s:
                now, error = time.monotonic(), outcome.failure.detail
                if pause_s >= _WARN_PAUSE_S and now >= self._paused_until:
                    name = self._breaker.name
                    log.warning("the judge's server limits calls; they wait", model=name, seconds=pause_s, error=error)
                self._paused_until = max(self._paused_until, now + pause_s)
        return outcome
