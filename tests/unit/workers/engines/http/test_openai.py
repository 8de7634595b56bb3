"""The HTTP engine against a real server over a real socket: what it asks, and how it fits itself to servers."""

from __future__ import annotations

from typing import Any

import pytest

from rubricsvc.core.judge import Sampling
from tests.scripted_server import ScriptedReply, error, labels, scripted_server
from tests.unit.workers.engines.requests import SCHEMA, YES_NO, ask_at, failure_of, one
from workers.engines.base import EngineRequest, Failure, Question, Reply


def test_readout_requests_one_token_with_logprobs() -> None:
    answer, running = one(labels(Yes=0.7, No=0.2))
    assert isinstance(answer, Reply)
    assert answer.label_mass == pytest.approx({"Yes": 0.7, "No": 0.2})
    assert answer.latency_s > 0
    (body,) = running.requests
    assert body["messages"] == [{"role": "system", "content": "sys"}, {"role": "user", "content": "shared Met?"}]
    assert {key: body[key] for key in ("max_tokens", "logprobs", "top_logprobs")} == {
        "max_tokens": 1,
        "logprobs": True,
        "top_logprobs": 20,
    }


def test_written_request_has_the_judges_sampling() -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=77, seed=3)
    with scripted_server(ScriptedReply("{}", finish_reason="length")) as running:
        ((answer,),) = ask_at(running.url, EngineRequest("", "u", (Question("?", schema=SCHEMA),), sampling))
    assert isinstance(answer, Reply)
    assert answer.text == "{}"
    assert answer.truncated
    (body,) = running.requests
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["seed"]) == (0.5, 0.9, 77, 3)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


def test_structured_output_is_dropped_once_refused() -> None:
    def script(_: int, body: dict[str, Any]) -> ScriptedReply:
        return error(400, "json_schema is not supported") if "response_format" in body else ScriptedReply("{}")

    with scripted_server(script) as running:
        request = EngineRequest("", "u", (Question("?", schema=SCHEMA),))
        answers = ask_at(running.url, request, request)
    assert [isinstance(answer, Reply) for (answer,) in answers] == [True, True]
    assert ["response_format" in body for body in running.requests] == [True, False, False]


def test_limit_field_switches_to_max_completion_tokens() -> None:
    def script(_: int, body: dict[str, Any]) -> ScriptedReply:
        return error(400, "use 'max_completion_tokens' instead") if "max_tokens" in body else labels(Yes=0.9)

    answer, running = one(script)
    assert isinstance(answer, Reply)
    assert running.requests[-1]["max_completion_tokens"] == 1


@pytest.mark.parametrize(
    "words",
    [
        "top_logprobs must be at most 5",
        "Requested sample logprobs of 20, which is greater than max allowed: 5",
        "Invalid value for 'top_logprobs': must be less than or equal to 5.",
        "top_logprobs: Input should be between 0 and 5",
    ],
)
def test_top_logprobs_adapts_to_the_servers_limit(words: str) -> None:
    def script(_: int, body: dict[str, Any]) -> ScriptedReply:
        return error(400, words) if body["top_logprobs"] > 5 else labels(Yes=0.9)

    with scripted_server(script) as running:
        request = EngineRequest("", "u", (YES_NO,))
        (first,), (second,) = ask_at(running.url, request, request)
    assert isinstance(first, Reply) and isinstance(second, Reply)
    assert [body["top_logprobs"] for body in running.requests] == [20, 5, 5]


@pytest.mark.parametrize(
    "text", ["logprobs up to 2, not max_completion_tokens nor a chat_template", "is it up to 2?", "no more than max 3"]
)
def test_refusal_that_quotes_the_request_changes_nothing(text: str) -> None:
    """vLLM's validation errors hold the input."""

    def script(number: int, body: dict[str, Any]) -> ScriptedReply:
        shown = {name: body[name] for name in ("top_logprobs", "messages") if name in body}
        return error(400, f"messages.0: bad value, input: {shown}") if number == 0 else labels(Yes=0.9)

    with scripted_server(script) as running:
        first, second = ask_at(running.url, EngineRequest("", text, (YES_NO,)), EngineRequest("", "u", (YES_NO,)))
    assert isinstance(first[0], Failure) and isinstance(second[0], Reply)
    before, after = running.requests
    assert before.keys() == after.keys()
    assert after["top_logprobs"] == 20


def test_api_key_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "s3cret")
    failure, running = failure_of(error(401, "no"), api_key_env="JUDGE_KEY")
    assert running.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in f"{failure.detail}{failure.raw}"
    monkeypatch.delenv("JUDGE_KEY")
    _, running = one(labels(Yes=0.9), api_key_env="JUDGE_KEY")
    assert running.headers[0]["Authorization"] == "Bearer none"


def test_reply_of_invalid_utf8_does_not_raise() -> None:
    with scripted_server(labels(Yes=0.9)) as running:
        ((answer,),) = ask_at(running.url, EngineRequest("", "lone surrogate \ud800", (YES_NO,)))
    assert isinstance(answer, Failure | Reply)
