"""The client while the service is away, and responses that are not the service's."""

from __future__ import annotations

import json
import threading
import time

import httpx2
import pytest

from rubricsvc.client import Client, transport
from rubricsvc.errors import (
    NotFoundError,
    RubricsvcError,
)
from rubricsvc.store.session import Database
from tests.service_process import running
from tests.services import free_port


class Answers(httpx2.BaseTransport):
    """Gives the answers of a list, one after the other, and keeps the requests."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept, instead of sleeping: the clock is put forward."""
    seconds: list[float] = []
    monotonic = time.monotonic
    monkeypatch.setattr(time, "sleep", seconds.append)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + sum(seconds))
    return seconds


EMPTY = {"data": [], "next": None}


def test_client_retries_transient_errors(slept: list[float]) -> None:
    transport = Answers(
        httpx2.ConnectError("refused"),
        httpx2.Response(503, headers={"Retry-After": "3"}),
        httpx2.Response(429, headers={"Retry-After": "garbage"}),
        httpx2.ReadTimeout("slow"),
        httpx2.Response(200, json=EMPTY),
    )
    assert Client(transport=transport).prompts.page().data == ()
    assert len(transport.requests) == 5
    assert slept[1] == 3.0
    assert all(0 < seconds < 2 for seconds in (slept[0], slept[2], slept[3]))


def test_client_retry_sends_same_idempotency_key(slept: list[float]) -> None:
    transport = Answers(
        httpx2.ConnectError("lost"), httpx2.ReadError("lost"), httpx2.Response(404, text="nothing here")
    )
    with pytest.raises(RubricsvcError, match="nothing here"):
        Client(transport=transport).jobs.submit(judge="j", items=[{"completion_id": 1, "rubric": "r"}])
    sent = [json.loads(request.content)["key"] for request in transport.requests]
    assert len(sent) == 3
    assert len(set(sent)) == 1
    other = Answers(httpx2.Response(404))
    with pytest.raises(RubricsvcError):
        Client(transport=other).jobs.submit(judge="j", items=[{"completion_id": 1, "rubric": "r"}])
    assert json.loads(other.requests[0].content)["key"] not in (None, sent[0])


def test_client_waits_for_a_service_that_is_started_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    port, warned = free_port(), threading.Event()
    monkeypatch.setattr(transport.log, "warning", lambda *_: warned.set())
    with Client(f"http://127.0.0.1:{port}") as client:
        with running(db, at_port=port):
            client.prompts.add("Why?")
        texts: list[str] = []
        reads = threading.Thread(target=lambda: texts.append(client.prompts.get(1).prompt.text))
        reads.start()
        assert warned.wait(60)
        with running(db, at_port=port):
            reads.join(60)
    assert texts == ["Why?"]


def test_client_does_not_retry_other_errors(slept: list[float]) -> None:
    for status in (400, 401, 404, 409, 422, 500):
        transport = Answers(httpx2.Response(status, json={"error": {"code": "new_code", "message": "m"}}))
        with pytest.raises(RubricsvcError, match="m") as caught:
            Client(transport=transport).prompts.page()
        assert (caught.value.code, caught.value.status) == ("new_code", status)
    assert slept == []


def test_client_error_of_restores_class() -> None:
    assert RubricsvcError.by_code["not_found"] is NotFoundError
    for code, kind in RubricsvcError.by_code.items():
        body = {"error": {"code": code, "message": "m", "hint": "h", "path": "p"}}
        error = transport.error_of(httpx2.Response(kind.status, json=body))
        assert (type(error), error.status, error.path) == (kind, kind.status, "p")
