"""The circuit breaker: what opens and closes it, and who waits for a look at the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason
from tests.scripted_server import Say, scripted_server
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.engines.http.breaker import FAILURES, Breaker
from workers.engines.http.openai import OpenAIEngine
from workers.engines.http.transport import RequestFailed


def miss(reason: Reason, status: int = 0) -> RequestFailed:
    return RequestFailed(Failure(reason, str(reason)), retry=True, status=status)


def bringing(outcome: str | RequestFailed, after: float = 0.0) -> Callable[[], Awaitable[str | RequestFailed]]:
    async def call() -> str | RequestFailed:
        await asyncio.sleep(after)
        return outcome

    return call


def reason_of(outcome: str | RequestFailed) -> str:
    return str(outcome.failure.reason) if isinstance(outcome, RequestFailed) else outcome


async def opened(outage_timeout_s: float) -> Breaker:
    """Its server answers probes."""

    async def alive() -> bool:
        return True

    breaker = Breaker(alive, name="m", outage_timeout_s=outage_timeout_s, first_pause_s=0.01)
    for _ in range(FAILURES):
        await breaker.call(bringing(miss(Reason.UNREACHABLE)))
    assert breaker._opened_at is not None
    return breaker


@pytest.mark.parametrize("last", ["reply", miss(Reason.REFUSED, 400), miss(Reason.TIMEOUT, 408)])
def test_who_ran_out_of_patience_waits_for_a_look_that_ends_well(last: str | RequestFailed) -> None:
    async def run() -> list[str]:
        breaker = await opened(outage_timeout_s=0.1)
        slow = asyncio.create_task(breaker.call(bringing(last, 0.4)))
        others = [asyncio.create_task(breaker.call(bringing("reply"))) for _ in range(3)]
        await asyncio.sleep(0.2)
        others.append(asyncio.create_task(breaker.call(bringing("reply"))))  # comes when patience is over
        await slow
        return [reason_of(await other) for other in others]

    assert asyncio.run(run()) == ["reply"] * 4


def test_a_look_that_ends_badly_was_part_of_the_outage() -> None:
    async def run() -> list[str]:
        breaker = await opened(outage_timeout_s=0.1)
        slow = breaker.call(bringing(miss(Reason.TIMEOUT), 0.4))
        outcomes = await asyncio.gather(slow, *(breaker.call(bringing("reply")) for _ in range(3)))
        return [reason_of(outcome) for outcome in outcomes]

    assert asyncio.run(run()) == ["timeout", "unavailable", "unavailable", "unavailable"]


def test_a_look_that_tells_nothing_is_followed_by_another() -> None:
    """It was cancelled, or its call was never made."""

    async def run() -> list[str]:
        breaker = await opened(outage_timeout_s=0.1)
        looks = [asyncio.create_task(breaker.call(bringing("reply", 600)))]
        looks.append(asyncio.create_task(breaker.call(bringing(miss(Reason.BUDGET), 0.1))))
        others = [asyncio.create_task(breaker.call(bringing("reply"))) for _ in range(3)]
        await asyncio.sleep(0.3)
        looks[0].cancel()
        return [reason_of(await other) for other in others]

    assert asyncio.run(run()) == ["reply"] * 3


@pytest.mark.parametrize(
    ("between", "opens"),
    [
        ("reply", False),
        (miss(Reason.REFUSED, 400), False),
        (miss(Reason.RATE_LIMITED, 429), False),
        (miss(Reason.UNPARSEABLE), False),
        (miss(Reason.TIMEOUT), True),
        (miss(Reason.SERVER_ERROR, 503), True),
        (miss(Reason.BUDGET), True),
        (miss(Reason.ENGINE_ERROR), True),
    ],
    ids=lambda given: reason_of(given) if isinstance(given, str | RequestFailed) else str(given),
)
def test_only_an_answer_begins_the_count_anew(between: str | RequestFailed, opens: bool) -> None:
    async def run() -> bool:
        async def alive() -> bool:
            return True

        breaker = Breaker(alive, name="m", outage_timeout_s=0, first_pause_s=60)
        down = bringing(miss(Reason.TIMEOUT))
        for call in [down] * (FAILURES - 1) + [bringing(between)] + [down] * (FAILURES - 1):
            await breaker.call(call)
        return breaker._opened_at is not None

    assert asyncio.run(run()) is opens


def test_a_server_that_hangs_is_left_alone() -> None:
    """Else each question would wait out each of its retries."""

    async def run(url: str) -> list[Reply | Failure]:
        reached = Endpoint(base_url=url, timeout_s=0.3, max_retries=4, outage_timeout_s=0.0, prompt_lists=False)
        engine = OpenAIEngine("m", reached, first_pause_s=0.2)
        try:
            return await engine.ask(EngineRequest("", "u", tuple(Question(str(n), ("Yes",)) for n in range(FAILURES))))
        finally:
            await engine.aclose()

    with scripted_server(Say(delay_s=600)) as running:
        answers = asyncio.run(run(running.url))
        assert FAILURES <= running.count < 2 * FAILURES
    assert {str(answer.reason) for answer in answers if isinstance(answer, Failure)} <= {"timeout", "unavailable"}
    assert sum(isinstance(answer, Failure) and answer.reason is Reason.UNAVAILABLE for answer in answers) > 1
