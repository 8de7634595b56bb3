"""Calls to a real server over a real socket: whatever comes back is a reply or a failure with its reason."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import time
from email.utils import formatdate
from typing import Any

import pytest

from rubricsvc.core.judge import Endpoint, Sampling
from rubricsvc.core.verdict import RAW_CHARS, Reason
from rubricsvc.errors import InvalidError
from tests import scripted_server as server
from tests.judges_page import rows, spans
from tests.scripted_server import ScriptedReply, error, labels, scripted_server, text_reply
from tests.unit.workers.engines.requests import SCHEMA, YES_NO, ask_at, failure_of, one
from workers.engines.base import EngineRequest, Failure, Question, Reply, RequestFailed
from workers.engines.http.client import MAX_BODY_BYTES, HttpClient, refusal
from workers.engines.http.openai import OpenAIEngine

RETRIED = [
    (server.DROPPED, Reason.UNREACHABLE),
    (server.CUT_OFF, Reason.UNREACHABLE),
    (server.NAN, Reason.OUT_OF_RANGE),
    (server.POSITIVE, Reason.OUT_OF_RANGE),
]


@pytest.mark.parametrize(
    ("script", "reason", "calls"), [*((*one, 3) for one in RETRIED), (ScriptedReply("Yes"), Reason.NO_LOGPROBS, 1)]
)
def test_client_retries_what_may_succeed_later(script: ScriptedReply, reason: Reason, calls: int) -> None:
    failure, running = failure_of(script, max_retries=2)
    assert (failure.reason, running.count) == (reason, calls)
    answer, _ = one([script, script, labels(Yes=0.9)], max_retries=2)
    assert isinstance(answer, Reply) is (calls > 1)


async def call_once(url: str) -> bytes | RequestFailed:
    client = HttpClient(Endpoint(base_url=url))
    try:
        return await client.call("/chat/completions", {})
    finally:
        await client.aclose()


def respond(sample: str, done: str) -> tuple[list[Reply | Failure], int, float | None]:
    """Return the answers to two requests, the calls, and the pause, of a server that sends a response of the docs.

    It sends it three times, or as long as the parameter that it refuses is as it was.
    """
    status, _, body = sample.partition(" ")
    header = re.fullmatch(r"(?i)(retry-after\S*): (.+)", body)
    bad = ScriptedReply(status=int(status), headers={header[1]: header[2]} if header else {}, body=body.encode())
    field = re.search(r"(with|without) `(\w+)`(?: (\d+))?", done)

    def script(number: int, request: dict[str, Any]) -> ScriptedReply:
        refused = number < 3
        if field:
            refused = (field[2] in request) == (field[1] == "without")
            refused = request[field[2]] != int(field[3]) if field[3] else refused
        return bad if refused else labels(Yes=0.9)

    schema = SCHEMA if "response_format" in done else None
    question = YES_NO if "logprobs" in sample else Question("?", schema=schema)
    request = EngineRequest("", "u", (question,), Sampling(top_p=0.9, seed=3))
    with scripted_server(script) as running:
        answers = [answer for (answer,) in ask_at(running.url, request, request, max_retries=1)]
        count, running.script = running.count, bad
        outcome = asyncio.run(call_once(running.url))
    return answers, count, outcome.retry_after_s if isinstance(outcome, RequestFailed) else None


def test_samples_of_responses_in_the_docs_have_their_outcomes() -> None:
    samples = [(one, done, spans(reason)) for cell, done, reason in rows("response of") for one in spans(cell)]
    assert len(samples) > 40
    for sample, done, reason in samples:
        answers, count, pause_s = respond(sample, done)
        reasons = [[answer.reason] if isinstance(answer, Failure) else [] for answer in answers]
        calls = 3 if " `" in done else {"asked": 4, "failed": 2, "read": 2}[done.split()[0]]
        assert (reasons, count) == ([reason, reason if done == "failed" else []], calls), sample
        pause = re.search(r"after ([\d.]+) s", done)
        assert pause_s == (float(pause[1]) if pause else None), sample


@pytest.mark.parametrize("script", [ScriptedReply(delay_s=30), server.SLOW_LORIS])
def test_client_times_out_on_a_silent_or_dripping_server(script: ScriptedReply) -> None:
    failure, running = failure_of(script, timeout_s=0.2, max_retries=1)
    assert failure.reason is Reason.TIMEOUT
    assert running.count == 2


HUGE = b'{"id": "' + b"x" * (MAX_BODY_BYTES + 2**20) + b'"}'


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (ScriptedReply(body=HUGE), Reason.UNPARSEABLE),
        (ScriptedReply(body=gzip.compress(HUGE), headers={"Content-Encoding": "gzip"}), Reason.UNPARSEABLE),
        (ScriptedReply(status=500, body=HUGE), Reason.SERVER_ERROR),
        (ScriptedReply(status=400, body=HUGE), Reason.REFUSED),
    ],
    ids=["200", "200 packed", "500", "400"],
)
def test_body_over_the_limit_fails_with_its_beginning(script: ScriptedReply, reason: Reason) -> None:
    failure, _ = failure_of(script)
    assert failure.reason is reason
    assert failure.raw == HUGE[:RAW_CHARS].decode()


def test_client_reports_a_refused_connection_as_unreachable() -> None:
    with socket.socket() as bound:  # a port without a listener
        bound.bind(("127.0.0.1", 0))
        ((answer,),) = ask_at(f"http://127.0.0.1:{bound.getsockname()[1]}/v1", EngineRequest("", "u", (YES_NO,)))
    assert isinstance(answer, Failure)
    assert answer.reason is Reason.UNREACHABLE
    assert answer.detail.startswith("http://127.0.0.1:") and "ssl" not in answer.detail


@pytest.mark.parametrize("key", ["sk-1\n", "sk 1", "sk-é"])
def test_api_key_that_is_invalid_is_not_printed(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(InvalidError, match="MY_KEY") as caught:
        ask_at("http://127.0.0.1:9/v1", EngineRequest("", "u", (YES_NO,)), api_key_env="MY_KEY")
    assert key.strip() not in str(caught.value)


def test_server_without_http_is_unreachable() -> None:
    async def run() -> Reply | Failure:
        async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\x00\x01 this is not HTTP\r\n\r\n")
            writer.close()

        listener = await asyncio.start_server(garbage, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        engine = OpenAIEngine("m", Endpoint(base_url=f"http://127.0.0.1:{port}/v1", max_retries=0))
        (answer,) = await engine.ask(EngineRequest("", "u", (YES_NO,)))
        await engine.aclose()
        listener.close()
        return answer

    answer = asyncio.run(run())
    assert isinstance(answer, Failure)
    assert answer.reason is Reason.UNREACHABLE


def test_retry_after_parses_http_dates() -> None:
    for seconds in (20.0, -20.0):
        given = formatdate(time.time() + seconds, usegmt=True)
        assert refusal(429, b"", given).retry_after_s == pytest.approx(max(0.0, seconds), abs=2)


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
    with scripted_server(ScriptedReply("{}", finish_reason="model_length")) as running:
        ((answer,),) = ask_at(running.url, EngineRequest("", "u", (Question("?", schema=SCHEMA),), sampling))
    assert isinstance(answer, Reply)
    assert answer.text == "{}"
    assert answer.truncated
    (body,) = running.requests
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["seed"]) == (0.5, 0.9, 77, 3)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA


REFUSED = error(400, "json_schema is not supported")


@pytest.mark.parametrize(
    ("given", "free", "structured", "sent", "texts"),
    [
        (REFUSED, "{}", "auto", [True, False, False], ["{}", "{}"]),
        (REFUSED, "", "on", [True, False, False], ["", ""]),
        (text_reply(" \n"), "{}", "auto", [True, False, False], ["{}", "{}"]),
        (text_reply("{" + "\n" * 90, finish_reason="length"), "{}", "auto", [True, False, False], ["{}", "{}"]),
        (text_reply(""), "", "auto", [True, False, True, False], ["", ""]),  # not response_format's fault
        (text_reply(""), error(503), "auto", [True, False, True, False], ["", ""]),
        (text_reply(""), "{}", "on", [True, True], ["", ""]),
        (text_reply("{}"), "free", "off", [False, False], ["free", "free"]),
        (text_reply('{"a"' + "\n" * 9, finish_reason="length"), "{}", "auto", [True, True], ['{"a"' + "\n" * 9] * 2),
    ],
)
def test_structured_output_is_dropped_once_refused_or_blank(
    given: ScriptedReply, free: str | ScriptedReply, structured: str, sent: list[bool], texts: list[str]
) -> None:
    plain = ScriptedReply(free) if isinstance(free, str) else free
    with scripted_server(lambda _, body: given if "response_format" in body else plain) as running:
        request = EngineRequest("", "u", (Question("?", schema=SCHEMA),))
        replies = [answer for (answer,) in ask_at(running.url, request, request, structured=structured)]
    assert [reply.text for reply in replies if isinstance(reply, Reply)] == texts
    assert ["response_format" in body for body in running.requests] == sent
    calls = 2 if given.status == 200 and sent[:2] == [True, False] and plain.status == 200 else 1
    assert isinstance(replies[0], Reply) and replies[0].usage and replies[0].usage.prompt == 10 * calls
    assert ("without response_format" in replies[0].note) == (given.status == 200 and sent[:2] == [True, False])


@pytest.mark.parametrize(
    ("refused", "rounds"),
    [
        ({"temperature": "Unsupported value: 'temperature' does not support 0; only the default (1) is supported."}, 1),
        ({"seed": '{"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "input": 3}]}'}, 1),
        ({"seed": "Unknown argument: `seed`; known are `messages`, `temperature` and `top_p`"}, 1),
        ({"top_p": "temperature and top_p cannot both be specified"}, 1),
        ({"seed": "seed is no field", "top_p": "top_p: only 1", "temperature": "temperature must be 1"}, 3),
    ],
)
def test_sampling_parameter_is_dropped_once_refused(refused: dict[str, str], rounds: int) -> None:
    """The texts are of temperatures, too; several calls at once learn the same."""

    def script(_: int, body: dict[str, Any]) -> ScriptedReply:
        shown = "input: " + str({"temperature": body.get("temperature")})
        return next(
            (error(422, f"{words} {shown}") for name, words in refused.items() if name in body), text_reply("x")
        )

    with scripted_server(script) as running:
        request = EngineRequest("", "The temperature, is 3", (Question("?"),) * 2, Sampling(top_p=0.9, seed=3))
        first, second = ask_at(running.url, request, request)
    for reply in (*first, *second):
        assert isinstance(reply, Reply)
        assert all(name in reply.note for name in refused)
    assert rounds + 4 <= running.count <= 2 * rounds + 4  # a call that comes later has less to learn
    for name in ("seed", "top_p", "temperature"):
        assert (name in running.requests[-1]) is (name not in refused)


@pytest.mark.parametrize(
    "text",
    [
        "logprobs up to 2, not max_completion_tokens nor a chat_template",
        "is it up to 2?",
        "no more than max 3",
        'unsupported value: "temperature"\ntemperature\n',
    ],
)
def test_refusal_that_quotes_the_request_changes_nothing(text: str) -> None:
    """vLLM's validation errors hold the input."""

    def script(number: int, body: dict[str, Any]) -> ScriptedReply:
        shown = {name: body[name] for name in ("top_logprobs", "temperature", "messages") if name in body}
        return error(400, f"messages.0: bad value, input: {json.dumps(shown)}") if number == 0 else labels(Yes=0.9)

    with scripted_server(script) as running:
        first, second = ask_at(running.url, EngineRequest("", text, (YES_NO,)), EngineRequest("", "u", (YES_NO,)))
    assert isinstance(first[0], Failure) and isinstance(second[0], Reply)
    before, after = running.requests
    assert before.keys() == after.keys()
    assert after["top_logprobs"] == 20


def test_api_key_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "s3cret")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    failure, running = failure_of(error(401, "no"), api_key_env="JUDGE_KEY")
    assert running.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in f"{failure.detail}{failure.raw}"
    monkeypatch.delenv("JUDGE_KEY")
    _, running = one(labels(Yes=0.9), api_key_env="JUDGE_KEY")
    assert running.headers[0]["Authorization"] == "Bearer none"
    assert "OpenAI-Organization" not in running.headers[0]  # as the key, of OpenAI alone
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    _, running = one(labels(Yes=0.9), api_key_env="OPENAI_API_KEY")
    assert running.headers[0]["OpenAI-Organization"] == "org-1"


def test_reply_of_invalid_utf8_does_not_raise() -> None:
    with scripted_server(labels(Yes=0.9)) as running:
        ((answer,),) = ask_at(running.url, EngineRequest("", "lone surrogate \ud800", (YES_NO,)))
    assert isinstance(answer, Failure | Reply)
