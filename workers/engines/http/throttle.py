"""The limits of one server that all calls of an engine share, and a circuit breaker: calls wait while it is down.

::

    closed ──8 failures in a row──▶ open ──the server answers a probe, and one call succeeds──▶ closed

A failure is a call that brought nothing: no connection, a status of 5xx, no response in time. Any other response, a
refusal included, resets the count. While the circuit is open, calls wait; every few seconds one of them probes the
server (``GET /models``) and, when that answers, makes its own call as a trial. So an outage of a minute costs a minute
and no verdict. ``outage_timeout_s`` after it began waiting calls fail as ``unavailable``, and later ones at once, until
a trial succeeds; calls that arrive during a trial wait for its result.
"""

import asyncio
import random
import time
from bisect import bisect
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
OVERLOAD = (Reason.RATE_LIMITED, *DOWN)
_NOT_SENT = (Reason.BUDGET, Reason.ENGINE_ERROR)
_MAX_PROBE_PAUSE_S = 4.0

_ALWAYS_WAITED_S = 30.0
"""A ``Retry-After`` up to this is waited for without an outage time, too: the server is not down."""

_WARN_PAUSE_S = 5.0
_MINUTE_S = 60.0
_RECHECK_S = 5.0
"""How long a call waits before it looks again whether this worker's part of the rate has grown."""
_MAX_BACKOFF_S = 8.0

log = get_logger(__name__)


class Throttle:
    """Waits, retries and the breaker of the server of the model ``name``. Waiting uses up none of a call's retries.

    The limits are the endpoint's, or this worker's part of them (see `share`).
    Calls in progress are limited by additive increase and multiplicative decrease: at first the endpoint's
    ``concurrency`` and never more; each round of successful calls adds one, a round with an overloaded call halves it.
    At most ``requests_per_minute`` calls start within any minute, first come first served; a leaky bucket, as in
    aiolimiter, would let twice as many through in its first minute. All calls wait for a ``Retry-After`` of at most the
    endpoint's ``outage_timeout_s``; a longer one fails its call.

    ``probe`` asks the server for anything; a refusal (4xx) is an answer. ``first_pause_s`` is the pause before a call's
    first retry, doubled for each further one, and that before the first probe; later ones grow with the outage.
    """

    def __init__(
        self, endpoint: Endpoint, probe: Callable[[], Awaitable[object]], *, name: str, first_pause_s: float = 0.5
    ) -> None:
        self._endpoint, self._probe, self._name, self._first_pause_s = endpoint, probe, name, first_pause_s
        self._max_pause_s = max(endpoint.outage_timeout_s, _ALWAYS_WAITED_S)
        self._most, self.limit = endpoint.concurrency, float(endpoint.concurrency)
        self._halved_at = self._paused_until = float("-inf")
        self._slots = asyncio.Semaphore(endpoint.concurrency)
        self._surplus = 0  # slots over the limit, withdrawn as they come back
        self._busy = 0
        self._per_minute = per_minute = endpoint.requests_per_minute or 0
        self._started = deque([float("-inf")] * per_minute, per_minute)
        self._turn, self._trial = asyncio.Lock(), asyncio.Lock()
        self.is_open = False
        self._failures, self._opened_at, self._failed_at, self._last_error = 0, 0.0, 0.0, ""

    async def call(self, send: Send, max_cost: float) -> Outcome:
        """Return the outcome of ``send``, a call that costs at most ``max_cost``, with the endpoint's retries."""
        for attempt in range(self._endpoint.max_retries + 1):
            await self._slots.acquire()
            while self._surplus:  # the slot was free: it is withdrawn
                self._surplus -= 1
                await self._slots.acquire()
            self._busy += 1
            try:
                outcome = await self._when_up(send, max_cost)
            finally:
                self._busy -= 1
                self._release()
            if not isinstance(outcome, RequestFailed) or not outcome.retry or attempt == self._endpoint.max_retries:
                break
            if (wait_s := outcome.retry_after_s or 0.0) > self._max_pause_s:
                detail = cut(f"{outcome.failure.detail}; Retry-After: {wait_s:g} s", RAW_CHARS)
                return replace(outcome, failure=replace(outcome.failure, detail=detail))
            if outcome.retry_after_s is None:  # else all calls wait
                pause_s = min(_MAX_BACKOFF_S, self._first_pause_s * 2**attempt)
                await asyncio.sleep(pause_s * random.uniform(0.75, 1.0))
        return outcome

    def share(self, part: float) -> float:
        """Use a part, from 0 to 1, of the endpoint's limits, which all workers have together, in whole calls.

        Returns:
            The part that calls in progress, or begun within the last minute, use at present.
        """
        before, at_most = int(self.limit), self.limit >= self._most
        self._most = int(self._endpoint.concurrency * part + 0.01)  # what others began lately may take a bit of a part
        self.limit = float(self._most) if at_most else min(self.limit, self._most)
        self._surplus += max(0, before - int(self.limit))
        for _ in range(int(self.limit) - before):
            self._release()
        self._per_minute = int(len(self._started) * part + 1e-6)
        begun = len(self._started) - bisect(self._started, time.monotonic() - _MINUTE_S)
        return max(self._busy / self._endpoint.concurrency, begun / (len(self._started) or 1))

    def _release(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            self._slots.release()

    async def _when_up(self, send: Send, max_cost: float) -> Outcome:
        """Return the outcome of ``send``, called once the server is up, or ``unavailable``."""
        while self.is_open:
            now, failed_at = time.monotonic(), self._failed_at
            probe_at = failed_at + min(_MAX_PROBE_PAUSE_S, max(self._first_pause_s, failed_at - self._opened_at))
            if now >= probe_at:
                async with self._trial:
                    if self.is_open and self._failed_at == failed_at:  # no other trial has ended meanwhile
                        answer = await self._probe()
                        if not isinstance(answer, RequestFailed) or 0 < answer.status < 500:
                            return await self._sent(send, max_cost)
                        self._failed_at = time.monotonic()
            elif (left := self._opened_at + self._endpoint.outage_timeout_s - now) > 0:
                await asyncio.sleep(min(left, probe_at - now))
            else:
                return RequestFailed(Failure(Reason.UNAVAILABLE, f"not sent, the server is down: {self._last_error}"))
        return await self._sent(send, max_cost)

    async def _sent(self, send: Send, max_cost: float) -> Outcome:
        """Send a call when neither a pause nor the rate holds it back, and learn from its outcome."""
        async with self._turn:
            while True:
                now, may_start = time.monotonic(), self._paused_until
                if self._started:
                    rest = self._started[-self._per_minute] + _MINUTE_S if self._per_minute else now + _RECHECK_S
                    may_start = max(may_start, rest)
                if may_start <= now:
                    break
                await asyncio.sleep(min(may_start - now, _RECHECK_S))
            self._started.append(began := time.monotonic())
        outcome = await charge(send, max_cost, self._endpoint.price)
        overload = outcome if isinstance(outcome, RequestFailed) and outcome.failure.reason in OVERLOAD else None
        if overload and (pause_s := overload.retry_after_s or 0.0) <= self._max_pause_s:
            now, error = time.monotonic(), overload.failure.detail
            if pause_s >= _WARN_PAUSE_S and now >= self._paused_until:
                log.warning("the server limits calls; they wait", model=self._name, seconds=pause_s, error=error)
            self._paused_until = max(self._paused_until, now + pause_s)
        self.adapt(outcome, began)
        self.watch(outcome)
        return outcome

    def adapt(self, outcome: Outcome, began: float) -> None:
        """Change the limit of calls in progress by the outcome of a call.

        An overload of a call that ``began`` before the last halving says nothing of the limit.
        """
        before = int(self.limit)
        if not isinstance(outcome, RequestFailed):
            self.limit = min(self._most, self.limit + 1 / max(1.0, self.limit))
            if int(self.limit) > before:
                self._release()
        elif outcome.failure.reason in OVERLOAD and began >= self._halved_at:
            self._halved_at = time.monotonic()
            self.limit = max(min(1.0, self._most), self.limit / 2)
            self._surplus += before - int(self.limit)

    def watch(self, outcome: Outcome) -> None:
        """Open or close the circuit by the outcome of a call. One that was not sent says nothing of the server."""
        if (
            not isinstance(outcome, RequestFailed)
            or 400 <= outcome.status < 500  # a refusal is an answer
            or outcome.failure.reason not in (*DOWN, *_NOT_SENT)
        ):
            if self.is_open:
                log.info("the judge's server answers again", model=self._name)
            self._failures, self.is_open = 0, False
        elif outcome.failure.reason in DOWN:
            self._failures += 1
            self._last_error = outcome.failure.detail
            if self._failures >= FAILURE_THRESHOLD:
                if not self.is_open:
                    self.is_open, self._opened_at = True, time.monotonic()
                    timeout_s, error = self._endpoint.outage_timeout_s, self._last_error
                    event = "the judge's server is down; calls " + ("wait" if timeout_s else "fail")
                    log.warning(event, model=self._name, outage_timeout_s=timeout_s, error=error)
                self._failed_at = time.monotonic()
