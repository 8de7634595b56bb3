"""Calls to a real server over a real socket: whatever comes back is a reply or a failure with its reason."""

from __future__ import annotations

import asyncio
import gzip
import socket

import pytest

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import RAW_CHARS, Reason
from rubricsvc.errors import InvalidError
from tests import scripted_server as server
from tests.scripted_server import ScriptedReply, error, labels
from tests.unit.workers.engines.requests import YES_NO, ask_at, failure_of, one
from workers.engines.base import EngineRequest, Failure, Reply
from workers.engines.http.client import MAX_BODY_BYTES, refusal
from workers.engines.http.openai import OpenAIEngine

RETRIED = [
    (error(500, "exploded"), Reason.SERVER_ERROR),
    (error(503, "warming up"), Reason.SERVER_ERROR),
    (error(429, "slow down"), Reason.RATE_LIMITED),
    (server.DROPPED, Reason.UNREACHABLE),
    (server.CUT_OFF, Reason.UNREACHABLE),
    (server.TRUNCATED_JSON, Reason.UNPARSEABLE),
    (server.NOT_JSON, Reason.UNPARSEABLE),
    (server.NO_CHOICES, Reason.UNPARSEABLE),
    (server.NAN, Reason.OUT_OF_RANGE),
    (server.POSITIVE, Reason.OUT_OF_RANGE),
]
PERMANENT = [
    (error(401, "bad key"), Reason.REFUSED),
    (error(404, "no such model"), Reason.REFUSED),
    (error(400, "logprobs are not supported by this model"), Reason.NO_LOGPROBS),
    (error(403, "You are not allowed to request logprobs from this model"), Reason.NO_LOGPROBS),
    (server.TOO_LONG, Reason.TOO_LONG),
    (error(400, "the request exceeds the available context size, try increasing it"), Reason.TOO_LONG),
    (error(400, "The decoder prompt is longer than the maximum model length of 8192."), Reason.TOO_LONG),
    (ScriptedReply("Yes"), Reason.NO_LOGPROBS),
]


@pytest.mark.parametrize(
    ("script", "reason", "calls"), [*((*one, 3) for one in RETRIED), *((*one, 1) for one in PERMANENT)]
)
def test_client_retries_what_may_succeed_later(script: ScriptedReply, reason: Reason, calls: int) -> None:
    failure, running = failure_of(script, max_retries=2)
    assert (failure.reason, running.count) == (reason, calls)
    answer, _ = one([script, script, labels(Yes=0.9)], max_retries=2)
    assert isinstance(answer, Reply) is (calls > 1)


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


@pytest.mark.parametrize(("given", "seconds"), [("0.3", 0.3), ("-1", None), ("soon", None), ("nan", None), ("", None)])
def test_retry_after_parses_seconds(given: str, seconds: float | None) -> None:
    assert refusal(429, b"", {"Retry-After": given}).retry_after_s == seconds
