"""How many calls a server gets and when, over a real socket: what it takes, and what an outage costs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason
from tests.scripted_server import Say, ScriptedServer, error, labels, scripted_server
from tests.unit.workers.engines.requests import YES_NO, ask_at
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.engines.http.openai import OpenAIEngine


def test_concurrency_is_bounded() -> None:
    with scripted_server(Say(delay_s=0.02)) as running:
        ask_at(running.url, EngineRequest("", "", tuple(Question(str(n)) for n in range(12))), concurrency=3)
    assert running.most_at_once == 3
    assert running.count == 12


def test_a_server_that_asks_for_a_pause_gets_it_from_all_questions() -> None:
    arrived: list[float] = []

    def script(number: int, _: dict[str, Any]) -> Say:
        arrived.append(time.monotonic())
        return error(429, retry_after=0.4) if number == 0 else labels(Yes=0.9)

    async def run(url: str) -> list[list[Reply | Failure]]:
        engine = OpenAIEngine("m", Endpoint(base_url=url, max_retries=1), first_pause_s=0.001)
        first = asyncio.create_task(engine.ask(EngineRequest("", "u", (YES_NO,))))
        while not engine._gate._pause._until:
            await asyncio.sleep(0.01)
        answers = [await engine.ask(EngineRequest("", "another", (YES_NO,))), await first]
        await engine.aclose()
        return answers

    with scripted_server(script) as running:
        answers = asyncio.run(run(running.url))
    assert [type(answer) for (answer,) in answers] == [Reply, Reply]
    assert len(arrived) == 3 and min(arrived[1:]) - arrived[0] >= 0.4


def test_a_server_that_takes_few_calls_gets_few() -> None:
    """It turns away what is more than two at once: in the end nobody is turned away, and everybody was answered."""
    turned_away: list[int] = []

    def script(number: int, _: dict[str, Any]) -> Say:
        if running.at_once > 2:
            turned_away.append(number)
            return error(429)
        return replace(labels(Yes=0.9), delay_s=0.02)

    async def run(url: str) -> tuple[list[Reply | Failure], int]:
        engine = OpenAIEngine("m", Endpoint(base_url=url, concurrency=32, max_retries=20), first_pause_s=0.01)
        answers = await engine.ask(EngineRequest("", "u", tuple(Question(str(n), ("Yes", "No")) for n in range(64))))
        await engine.aclose()
        return answers, engine._gate.slots.limit

    with scripted_server(script) as running:
        answers, limit = asyncio.run(run(running.url))
    assert all(isinstance(answer, Reply) for answer in answers)
    assert limit < 16  # it began with 32
    late = [number for number in turned_away if number >= running.count // 2]
    assert len(late) < len(turned_away) / 2


def test_an_outage_costs_time_and_no_answer() -> None:
    """The server fails until it has been asked for its models twice; nobody's retries are used up meanwhile."""

    def script(_: int, __: dict[str, Any]) -> Say:
        return labels(Yes=0.9) if running.looks >= 2 else error(503, "restarting")

    with scripted_server(script) as running:
        running.alive = lambda looks: looks >= 2
        request = EngineRequest("", "u", tuple(Question(str(n), ("Yes", "No")) for n in range(40)))
        (answers,) = ask_at(running.url, request, concurrency=8, max_retries=8)
    assert all(isinstance(answer, Reply) for answer in answers)
    assert running.count <= 40 + 16  # eight failures, and what was under way at the last of them


def test_patience_ends_and_then_questions_fail_at_once() -> None:
    with scripted_server(error(503, "gone")) as running:
        running.alive = lambda _: False
        request = EngineRequest("", "u", tuple(Question(str(n), ("Yes", "No")) for n in range(40)))
        first, second = ask_at(running.url, request, request, concurrency=8, outage_timeout_s=0.2)
    reasons = [answer.reason for answer in [*first, *second] if isinstance(answer, Failure)]
    assert reasons.count(Reason.SERVER_ERROR) == running.count <= 16
    assert reasons.count(Reason.UNAVAILABLE) == 80 - running.count
    assert isinstance(second[0], Failure) and "gone" in second[0].detail


def test_a_server_that_is_back_is_asked_again_after_patience_has_ended() -> None:
    async def run(running: ScriptedServer) -> list[list[Reply | Failure]]:
        endpoint = Endpoint(base_url=running.url, max_retries=0, concurrency=8, outage_timeout_s=0.0)
        engine = OpenAIEngine("m", endpoint, first_pause_s=0.001)
        many = EngineRequest("", "u", tuple(Question(str(n), ("Yes",)) for n in range(9)))
        answers = [await engine.ask(many)]
        running.script = labels(Yes=0.9)
        await asyncio.sleep(0.01)
        answers.append(await engine.ask(many))
        await engine.aclose()
        return answers

    with scripted_server(error(500)) as running:
        first, second = asyncio.run(run(running))
    assert all(isinstance(answer, Failure) for answer in first)
    assert any(isinstance(answer, Reply) for answer in second)


def test_an_hours_tokens_are_not_asked_for_in_a_minute() -> None:
    """The estimate (a thousand tokens and more) fills the minute; what was used makes room for the next."""
    with scripted_server(Say("{}", usage={"prompt_tokens": 10, "completion_tokens": 10})) as running:
        request = EngineRequest("", "u", (Question("1"), Question("2"), Question("3")))
        (answers,) = ask_at(running.url, request, tokens_per_minute=1100)
    assert all(isinstance(answer, Reply) for answer in answers)
    assert running.most_at_once == 1


def test_a_cancelled_ask_leaves_the_engine_usable() -> None:
    async def run(running: ScriptedServer) -> list[Reply | Failure]:
        engine = OpenAIEngine("m", Endpoint(base_url=running.url, concurrency=2, max_retries=0))
        many = EngineRequest("", "u", tuple(Question(str(n), ("Yes",)) for n in range(6)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await engine.ask(many)
        running.script = labels(Yes=0.9)
        answers = await engine.ask(many)
        await engine.aclose()
        return answers

    with scripted_server(Say(delay_s=30)) as running:
        answers = asyncio.run(run(running))
    assert all(isinstance(answer, Reply) for answer in answers)
