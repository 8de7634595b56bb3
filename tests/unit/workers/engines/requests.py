"""Questions to the HTTP engine, as its tests put them."""

import asyncio
from typing import Any

from rubricsvc.core.judge import Endpoint
from tests.scripted_server import Script, ScriptedServer, scripted_server
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.engines.http.openai import OpenAIEngine

YES_NO = Question("Met?", ("Yes", "No"))
SCHEMA = {"type": "object", "properties": {"verdict": {"type": "string"}}}


def ask_at(url: str, *asks: EngineRequest, model: str = "m", **endpoint: Any) -> list[list[Reply | Failure]]:
    """The answers to each ask, one after the other. Nothing is tried again, unless ``endpoint`` says so."""

    async def run() -> list[list[Reply | Failure]]:
        engine = OpenAIEngine(model, Endpoint(base_url=url, **{"max_retries": 0, **endpoint}), first_pause_s=0.001)
        try:
            return [await engine.ask(request) for request in asks]
        finally:
            await engine.aclose()

    return asyncio.run(run())


def one(script: Script, question: Question = YES_NO, **endpoint: Any) -> tuple[Reply | Failure, ScriptedServer]:
    """The answer to one question, and the server that was asked."""
    with scripted_server(script) as running:
        ((answer,),) = ask_at(running.url, EngineRequest("sys", "shared ", (question,)), **endpoint)
    return answer, running


def failure_of(script: Script, question: Question = YES_NO, **endpoint: Any) -> tuple[Failure, ScriptedServer]:
    """As `one`, where the answer is a failure."""
    answer, running = one(script, question, **endpoint)
    assert isinstance(answer, Failure), answer
    return answer, running
