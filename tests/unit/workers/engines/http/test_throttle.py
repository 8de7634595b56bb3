"""The limits of a server: concurrency, rates and Retry-After; and what opens and closes the circuit breaker."""

import asyncio
import math
import time
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason
from tests.scripted_server import ScriptedReply, error, labels, scripted_server
from tests.unit.workers.engines.requests import ask_at
from workers.engines.base import EngineRequest, Failure, Question, Replies, Reply, RequestFailed, Send
from workers.engines.http import throttle
from workers.engines.http.throttle import FAILURE_THRESHOLD, Throttle


def readouts(count: int) -> EngineRequest:
    return EngineRequest("", "u", tuple(Question(str(n), ("Yes", "No")) for n in range(count)))


OVERLOADED = RequestFailed(Failure(Reason.RATE_LIMITED), status=429)


async def alive() -> bool:
    return True


def throttle_of(concurrency: int, *, first_pause_s: float = 0.001, **fields: Any) -> Throttle:
    endpoint = Endpoint(concurrency=concurrency, **fields)
    return Throttle(endpoint, alive, name="m", first_pause_s=first_pause_s)


def test_concurrency_halves_once_a_round_and_recovers() -> None:
    limits = throttle_of(64)
    began = time.monotonic()
    for _ in range(64):
        limits.adapt(OVERLOADED, began)
    assert int(limits.limit) == 32
    for _ in range(10):
        limits.adapt(OVERLOADED, time.monotonic())
    assert int(limits.limit) == 1
    for _ in range(10_000):
        limits.adapt([], began)
    assert int(limits.limit) == 64


def test_concurrency_never_exceeds_a_limit_that_moves() -> None:
    async def run() -> tuple[int, int]:
        limits, busy, sent, most = throttle_of(8, max_retries=0), 0, 0, {True: 0, False: 0}

        async def send() -> RequestFailed:
            nonlocal busy, sent
            busy, sent, number = busy + 1, sent + 1, sent
            early = number < 20  # those that began before the halving may still be in progress
            most[early] = max(most[early], busy)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            busy -= 1
            return OVERLOADED if number == 7 else RequestFailed(Failure(Reason.REFUSED), status=400)

        await asyncio.gather(*(limits.call(send, 0.0) for _ in range(100)))
        return most[True], most[False]

    assert asyncio.run(run()) == (8, 4)


@pytest.fixture
def simulated_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time pass by sleeping alone."""
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("workers.engines.http.throttle.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(asyncio, "sleep", sleep)


@pytest.mark.usefixtures("simulated_clock")
def test_rate_limiter_holds_in_any_period() -> None:
    async def run() -> list[float]:
        starts: list[float] = []

        async def send() -> Replies:
            starts.append(throttle.time.monotonic())
            return []

        limits = throttle_of(64, requests_per_minute=5)
        for number in range(19):
            if number in (12, 16):
                limits.share(0.5 if number == 12 else 1.0)  # another worker joins, and leaves
            await limits.call(send, 0.0)
        return starts

    first = [0.0] * 5 + [60.0] * 5 + [120.0] * 2
    assert asyncio.run(run()) == first + [180.0] * 2 + [240.0] * 5


def test_concurrency_is_shared_with_workers_that_join() -> None:
    async def run() -> list[int]:
        limits, busy, most = throttle_of(9), 0, 0

        async def send() -> Replies:
            nonlocal busy, most
            busy, most = busy + 1, max(most, busy + 1)
            await asyncio.sleep(0)
            busy -= 1
            return []

        seen = []
        for part in (1.0, 0.5, 0.0, 1 / 9, 1 / 3, 1.0):
            limits.share(part)
            most = 0
            calls = asyncio.gather(*(limits.call(send, 0.0) for _ in range(40)))
            if not part:
                await asyncio.sleep(0.05)
                calls.cancel()
            await asyncio.gather(calls, return_exceptions=True)
            seen.append(most)
        return seen

    assert asyncio.run(run()) == [9, 4, 0, 1, 3, 9]


@pytest.mark.parametrize(("retry_after_s", "sent"), [(60.0, 1), (0.01, 4)])
def test_throttle_pauses_all_calls_for_retry_after(retry_after_s: float, sent: int) -> None:
    """Calls that wait while the first is refused wait for its ``Retry-After`` too."""
    count = 0

    async def send() -> Replies | RequestFailed:
        nonlocal count
        count += 1
        first = count == 1
        await asyncio.sleep(0)
        if first:
            return RequestFailed(Failure(Reason.RATE_LIMITED), retry=True, retry_after_s=retry_after_s, status=429)
        return [Reply("Yes")]

    async def run() -> None:
        limits = throttle_of(1, max_retries=1)
        calls = [asyncio.create_task(limits.call(send, 0.0)) for _ in range(3)]
        _, waiting = await asyncio.wait(calls, timeout=0.2 if sent == 1 else 20)
        for call in waiting:
            call.cancel()

    asyncio.run(run())
    assert count == sent


def throttled(*retry_after_s: float, calls: int = 1, **fields: Any) -> list[Any]:
    """The outcomes of calls to a server that refuses the first ones with a ``Retry-After``."""
    refusals = iter(retry_after_s)

    async def send() -> Replies | RequestFailed:
        if (seconds := next(refusals, None)) is None:
            return [Reply("Yes")]
        return RequestFailed(Failure(Reason.RATE_LIMITED, "HTTP 429"), True, seconds, 429)

    async def run() -> list[Any]:
        limits = throttle_of(1, **fields)
        return await asyncio.gather(*(limits.call(send, 0.0) for _ in range(calls)))

    return asyncio.run(run())


@pytest.mark.usefixtures("simulated_clock")
@pytest.mark.parametrize(("retry_after_s", "outage_timeout_s"), [(86400, 120), (121, 120), (31, 0), (math.inf, 86400)])
def test_throttle_fails_a_call_whose_retry_after_exceeds_the_outage_timeout(
    retry_after_s: float, outage_timeout_s: float
) -> None:
    refused, replied = throttled(retry_after_s, calls=2, outage_timeout_s=outage_timeout_s)
    assert refused.failure.reason is Reason.RATE_LIMITED and f"{retry_after_s:g} s" in refused.failure.detail
    assert refused.retry and replied == [Reply("Yes")], "the other call does not wait"


def test_engine_waits_out_an_outage() -> None:
    """The server fails until it has been probed twice; no question uses up its retries meanwhile."""

    def script(_: int, __: dict[str, Any]) -> ScriptedReply:
        return labels(Yes=0.9) if running.probes >= 2 else error(503, "restarting")

    with scripted_server(script) as running:
        running.alive = lambda probes: probes >= 2
        (replies,) = ask_at(running.url, readouts(40), concurrency=8, max_retries=8)
    assert all(isinstance(reply, Reply) for reply in replies)
    assert running.count <= 40 + 16  # eight failures, and what was in progress at the last of them


def test_engine_fails_at_once_after_the_outage_timeout() -> None:
    with scripted_server(error(503, "gone")) as running:
        running.alive = lambda _: False
        first, second = ask_at(running.url, readouts(40), readouts(40), concurrency=8, outage_timeout_s=0.2)
    reasons = [reply.reason for reply in [*first, *second] if isinstance(reply, Failure)]
    assert reasons.count(Reason.SERVER_ERROR) == running.count <= 16
    assert reasons.count(Reason.UNAVAILABLE) == 80 - running.count


def failed(reason: Reason, status: int = 0) -> RequestFailed:
    return RequestFailed(Failure(reason, str(reason)), retry=True, status=status)


def returning(outcome: str | RequestFailed, until: asyncio.Event | None = None) -> Send:
    async def call() -> object:
        if until is not None:
            await until.wait()
        return outcome

    return call  # type: ignore[return-value]


def reason_of(outcome: object) -> str:
    return str(outcome.failure.reason) if isinstance(outcome, RequestFailed) else str(outcome)


async def open_breaker() -> Throttle:
    """A breaker whose outage timeout is over, whose next probe is due, and whose server answers it."""
    opened = throttle_of(64, first_pause_s=0.01, max_retries=0, outage_timeout_s=0.01)
    for _ in range(FAILURE_THRESHOLD):
        await opened.call(returning(failed(Reason.UNREACHABLE)), 0.0)
    await asyncio.sleep(0.02)
    assert opened.is_open
    return opened


async def started(*calls: Awaitable[object]) -> list[asyncio.Task[object]]:
    tasks = [asyncio.ensure_future(call) for call in calls]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks  # type: ignore[return-value]


@pytest.mark.parametrize("last", ["reply", failed(Reason.REFUSED, 400), failed(Reason.TIMEOUT, 408)])
def test_breaker_calls_wait_for_a_trial_that_succeeds(last: str | RequestFailed) -> None:
    async def run() -> list[str]:
        opened, end = await open_breaker(), asyncio.Event()
        trial, *others = await started(
            opened.call(returning(last, end), 0.0), *(opened.call(returning("reply"), 0.0) for _ in range(3))
        )
        assert not any(other.done() for other in others)
        end.set()
        await trial
        return [reason_of(await other) for other in others]

    assert asyncio.run(run()) == ["reply"] * 3


@pytest.mark.parametrize(
    ("between", "opens"),
    [
        ("reply", False),
        (failed(Reason.REFUSED, 400), False),
        (failed(Reason.RATE_LIMITED, 429), False),
        (failed(Reason.UNPARSEABLE), False),
        (failed(Reason.TIMEOUT), True),
        (failed(Reason.SERVER_ERROR, 503), True),
        (failed(Reason.BUDGET), True),
        (failed(Reason.ENGINE_ERROR), True),
    ],
    ids=lambda given: reason_of(given) if isinstance(given, str | RequestFailed) else str(given),
)
def test_breaker_count_is_reset_by_responses_only(between: str | RequestFailed, opens: bool) -> None:
    async def run() -> bool:
        tried = throttle_of(64, first_pause_s=60, max_retries=0, outage_timeout_s=0)
        down = returning(failed(Reason.TIMEOUT))
        for call in [down] * (FAILURE_THRESHOLD - 1) + [returning(between)] + [down] * (FAILURE_THRESHOLD - 1):
            await tried.call(call, 0.0)
        return tried.is_open

    assert asyncio.run(run()) is opens
