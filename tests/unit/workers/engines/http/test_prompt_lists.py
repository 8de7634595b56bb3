"""Readouts in lists of prompts, from a server that behaves like vLLM or SGLang; and what is done where it does not."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from rubricsvc.core.verdict import Reason
from tests.scripted_server import MODEL, ScriptedReply, ScriptedServer, chat_ml, labels, scripted_server
from tests.unit.workers.engines import requests as asking
from workers.engines.base import EngineRequest, Failure, Question, Reply

YES_NO = ("Yes", "No")


def readouts(count: int, shared: str = "The answer: <|im_end|> is text.\n") -> EngineRequest:
    return EngineRequest("Judge.", shared, tuple(Question(f"Criterion {n}?", YES_NO) for n in range(count)))


def ask_at(running: ScriptedServer, *asks: EngineRequest, **endpoint: Any) -> list[list[Reply | Failure]]:
    return asking.ask_at(running.url, *asks, model=MODEL, **{"outage_timeout_s": 0, **endpoint})


def by_number(_: int, body: dict[str, Any]) -> ScriptedReply:
    """P(yes) tells the criterion's number."""
    number = int(body["messages"][-1]["content"].rpartition(" ")[2].rstrip("?"))
    return labels(Yes=(number + 1) / 100, No=0.1)


def masses(answers: list[Reply | Failure]) -> list[float]:
    assert all(isinstance(answer, Reply) and answer.label_mass for answer in answers), answers
    return [answer.label_mass["Yes"] for answer in answers if isinstance(answer, Reply) and answer.label_mass]


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_readouts_in_a_list_equal_single_readouts(kind: str) -> None:
    with scripted_server(by_number, kind=kind) as running:
        in_lists = ask_at(running, readouts(10), readouts(70))
        assert running.list_sizes == [10, 70]
        prompts = running.requests[0]["prompt"]
        alone = ask_at(running, readouts(10), readouts(70), prompt_lists=False)
        assert running.list_sizes == [10, 70]
    assert set(prompts) == {chat_ml(request["messages"]) for request in running.requests[2 : 2 + 10]}
    for together, single in zip(in_lists, alone, strict=True):
        assert masses(together) == pytest.approx(masses(single))
    assert masses(in_lists[1])[:3] == pytest.approx([0.01, 0.02, 0.03])


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_usage_is_divided_among_prompts(kind: str) -> None:
    """vLLM tells the cached tokens of the last prompt (those before it, but for the first, share the same), SGLang
    those of all."""
    usage = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 80}}
    with scripted_server(ScriptedReply("Yes", {"Yes": -0.1}, usage=usage), kind=kind) as running:
        ((first, *_),) = ask_at(running, readouts(4))
    assert isinstance(first, Reply) and first.usage is not None
    assert (first.usage.prompt, first.usage.cached, first.usage.completion) == (
        100,
        {"vllm": 60, "sglang": 80}[kind],
        1,
    )


def test_list_is_not_sent_to_unknown_servers_or_by_written_judges() -> None:
    with scripted_server(labels(Yes=0.9)) as running:
        (answers,) = ask_at(running, readouts(3))
        assert masses(answers) == pytest.approx([0.9] * 3)
    with scripted_server(ScriptedReply("{}"), kind="vllm") as running:
        ask_at(running, EngineRequest("s", "u", (Question("1"), Question("2"))))
        assert (running.list_sizes, running.count) == ([], 2)


def test_prompt_over_max_context_fails_alone() -> None:
    """The server's tokens are characters. It counts them for single requests; a list has none that is too long."""
    long, short = "x" * 1000 + " 2?", "é" * 400 + " 3?"
    mixed, fitting = (
        EngineRequest("", "Criterion ", tuple(Question(tail, YES_NO) for tail in tails), max_context=600)
        for tails in (["1?", long, short], ["1?", short])
    )

    def script(number: int, body: dict[str, Any]) -> ScriptedReply:
        usage = {"prompt_tokens": len(body["messages"][-1]["content"]), "completion_tokens": 1}
        return replace(by_number(number, body), usage=usage)

    with scripted_server(script, kind="vllm") as running:
        (first, second, third), answers = ask_at(running, mixed, fitting)
    assert isinstance(second, Failure) and second.reason is Reason.TOO_LONG
    assert masses([first, third]) == masses(answers) == pytest.approx([0.02, 0.04])
    assert running.list_sizes == [2]


def test_prompt_list_repeats_only_the_invalid_reply() -> None:
    broken: list[int] = []

    def script(number: int, body: dict[str, Any]) -> ScriptedReply:
        if "Criterion 1?" in body["messages"][-1]["content"] and not broken:
            broken.append(number)
            return ScriptedReply("Yes", {"Yes": math.nan})
        return by_number(number, body)

    with scripted_server(script, kind="vllm") as running:
        (answers,) = ask_at(running, readouts(3))
    assert masses(answers) == pytest.approx([0.01, 0.02, 0.03])
    assert running.count == 3 + 1


@pytest.mark.parametrize("body", [b"{}", b"[]", b"no", json.dumps({"choices": [{"index": 0}]}).encode()])
def test_list_with_an_invalid_body_disables_lists(body: bytes) -> None:
    def script(number: int, request: dict[str, Any]) -> ScriptedReply:
        return ScriptedReply(body=body) if number < 3 else by_number(number, request)

    with scripted_server(script, kind="vllm") as running:
        for answers in ask_at(running, readouts(3), readouts(3)):
            assert masses(answers) == pytest.approx([0.01, 0.02, 0.03])
    assert running.list_sizes == [3]


WRITTEN = EngineRequest("Judge.", "The answer. ", (Question("Write.", schema={"type": "object"}),))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_thinking_is_disabled_unless_requested(kind: str) -> None:
    quiet = {"chat_template_kwargs": {"enable_thinking": False}}
    with scripted_server(labels(Yes=0.5), kind=kind) as running:
        ask_at(running, readouts(1), WRITTEN, replace(WRITTEN, thinking=True))
        one, written, thinking = running.requests
    assert one.items() >= quiet.items()
    assert written.items() >= quiet.items()
    assert "chat_template_kwargs" not in thinking
