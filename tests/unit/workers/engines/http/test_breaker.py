"""The circuit breaker: what opens and closes it, and which calls wait for a trial."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason
from workers.engines.base import Failure, RequestFailed, Send
from workers.engines.http.throttle import FAILURE_THRESHOLD, Throttle


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


async def alive() -> bool:
    return True


def breaker(outage_timeout_s: float, first_pause_s: float) -> Throttle:
    endpoint = Endpoint(max_retries=0, outage_timeout_s=outage_timeout_s)
    return Throttle(endpoint, alive, name="m", first_pause_s=first_pause_s)


async def open_breaker() -> Throttle:
    """A breaker whose outage timeout is over, whose next probe is due, and whose server answers it."""
    opened = breaker(outage_timeout_s=0.01, first_pause_s=0.01)
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
        tried = breaker(outage_timeout_s=0, first_pause_s=60)
        down = returning(failed(Reason.TIMEOUT))
        for call in [down] * (FAILURE_THRESHOLD - 1) + [returning(between)] + [down] * (FAILURE_THRESHOLD - 1):
            await tried.call(call, 0.0)
        return tried.is_open

    assert asyncio.run(run()) is opens
