"""Sampling of completions from a real server: what is stored, asked again, and left out."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from rubricsvc.core.judge import Endpoint, Judge, Sampling
from rubricsvc.core.prompt import Document, Message, Prompt, ToolCall
from rubricsvc.core.verdict import Reason
from rubricsvc.store import completions
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import CompletionRow
from tests.rows import sampled
from tests.scripted_server import ScriptedReply, ScriptedServer, scripted_server, text_reply
from workers.authoring.completions import SamplingResult
from workers.engines import make_engine

CHAT = Prompt(
    messages=(
        Message(role="system", content="Be short."),
        Message(role="user", content="One?"),
        Message(role="assistant", content="", tool_calls=(ToolCall(name="look", arguments="{}", id="call-1"),)),
        Message(role="tool", content="1", tool_call_id="call-1"),
        Message(role="user", content="And two?"),
    ),
    documents=(Document(id="d", text="Two is 2."),),
)


def sample(
    db: Database, server: ScriptedServer, ids: list[int], *, n: int = 3, temperature: float = 0.7, **endpoint: Any
) -> SamplingResult:
    """Sample with the policy "p"; nothing is tried again, unless ``endpoint`` says so."""
    options = {"base_url": server.url, "max_retries": 0, "outage_timeout_s": 0.0, **endpoint}
    sampling = Sampling(temperature=temperature, max_tokens=50, seed=10)
    judge = Judge(name="j", model="scripted", sampling=sampling, endpoint=Endpoint.model_validate(options))

    async def run() -> SamplingResult:
        async with aclosing(make_engine(judge)) as engine:
            return await sampled(db, engine, judge, ids, policy="p", n=n)

    return asyncio.run(run())


def add_prompts(db: Database, *values: Prompt) -> list[int]:
    with db.write() as session:
        return [completions.add_prompt(session, value).id for value in values]


def stored(db: Database) -> list[tuple[int, int, float]]:
    """Return prompt id, number and temperature of all stored samples."""
    with db.read() as session:
        rows = page_of(session, CompletionRow, limit=1000)
    return sorted((row.prompt_id, row.value.sampling["sample"], row.value.sampling["temperature"]) for row in rows)  # type: ignore[type-var]


def test_sampler_stores_each_sample_with_its_sampling(each_db: Database) -> None:
    ids = add_prompts(each_db, CHAT, Prompt.of("Why?"))
    with scripted_server(text_reply("the same text", finish_reason="length")) as server:
        result = sample(each_db, server, ids)
        assert (result.stored, result.existing, result.truncated, result.tokens) == (6, 0, 6, 6.0)
        first = next(body for body in server.requests if len(body["messages"]) > 1)
        assert sample(each_db, server, ids).existing == 6, "equal texts are different samples"
        assert server.count == 6
        assert sample(each_db, server, ids, n=4).stored == 2
        assert sample(each_db, server, ids[:1], temperature=0.9).stored == 3
    roles = [message["role"] for message in first["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert first["messages"][1]["content"] == "[d] Two is 2.\n\nOne?"
    assert first["messages"][2]["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
    assert (first["max_tokens"], first["temperature"], first["seed"] in range(10, 13)) == (50, 0.7, True)
    assert len(stored(each_db)) == 11
    with each_db.read() as session:
        value = completions.get(session, 1).value
    expected = {"model": "scripted", "max_tokens": 50, "seed": 10, "top_p": 1.0, "temperature": 0.7, "truncated": True}
    assert (value.policy, value.text, expected.items() <= value.sampling.items()) == ("p", "the same text", True)
    with scripted_server(chat({"content": "Two.", "reasoning_content": "1 + 1"}, "stop")) as server:
        assert sample(each_db, server, ids[:1], n=1, temperature=0.1).stored == 1
    with each_db.read() as session:
        (thought,) = completions.get(session, 12).value.messages
    assert (thought.content, thought.reasoning) == ("Two.", "1 + 1")


def chat(message: dict[str, Any], finish_reason: str) -> ScriptedReply:
    return ScriptedReply(extra={"choices": [{"message": {"content": None, **message}, "finish_reason": finish_reason}]})


def test_sampler_counts_reply_without_text_as_failed(db: Database) -> None:
    cases = [
        (text_reply(""), Reason.UNPARSEABLE),
        (chat({"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, "tool_calls"), Reason.UNPARSEABLE),
        (chat({"reasoning_content": "hmm"}, "stop"), Reason.UNPARSEABLE),
        (chat({"reasoning_content": "hmm"}, "length"), Reason.TRUNCATED),
        (chat({"content": "half a"}, "content_filter"), Reason.DECLINED),
    ]
    for reply, reason in cases:
        ids = add_prompts(db, Prompt.of("Why?"))
        with scripted_server(reply) as server:
            result = sample(db, server, ids)
        assert (result.stored, dict(result.reasons), result.truncated) == (0, {reason: 3}, 0)
        assert sorted((failed.prompt_id, failed.sample) for failed in result.failures) == [
            (ids[0], n) for n in range(3)
        ]
        assert stored(db) == []


def test_sampler_stops_when_the_server_goes_away(db: Database) -> None:
    ids = add_prompts(db, *(Prompt.of(f"Why {n}?") for n in range(20)))
    with scripted_server([*[text_reply("So.")] * 5, ScriptedReply(drop=True)]) as server:
        server.alive = lambda probes: False
        result = sample(db, server, ids, concurrency=1)
        assert (result.stored, len(stored(db))) == (5, 5)
        assert result.stopped is not None and result.stopped.reason == Reason.UNAVAILABLE
        assert result.reasons.total() < 12, "the rest is not asked for"
        server.script, server.alive = text_reply("So."), lambda probes: True
        assert sample(db, server, ids).stored == 55
    assert len(set(stored(db))) == 60
