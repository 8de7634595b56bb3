"""What every request passes through."""

from __future__ import annotations

import json
import logging

import pytest
from fastapi.testclient import TestClient

from rubricsvc import telemetry
from tests.unit.rubricsvc.api.conftest import Serve


def test_request_context_accepts_or_creates_id(http: TestClient) -> None:
    assert http.get("/healthz", headers={"X-Request-ID": "mine-1"}).headers["X-Request-ID"] == "mine-1"
    made = http.get("/healthz", headers={"X-Request-ID": "bad id\tor attack"}).headers["X-Request-ID"]
    assert len(made) == 32
    assert http.get("/v1/prompts/1").headers["X-Request-ID"]


def test_request_context_logs_id(http: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        telemetry.configure("INFO", human=False)
        http.get("/v1/jobs/7", headers={"X-Request-ID": "mine-2"})
    finally:
        root.handlers[:], root.level = before, level
        logging.captureWarnings(False)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["request_id"], line["status"], line["route"]) == ("mine-2", 404, "/v1/jobs/{job_id}")


def test_body_limit_is_413(serve: Serve) -> None:
    http = serve(max_body_mib=1000 / 2**20)
    declared = http.post("/v1/prompts", json={"x": "y" * 1000})
    streamed = http.post(
        "/v1/prompts", content=(b"x" * 300 for _ in range(5)), headers={"Content-Type": "application/json"}
    )
    for answer in (declared, streamed):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_app_answers_500_to_an_unhandled_exception(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("rubricsvc.store.prompts.page", broken)
    answer = http.get("/v1/prompts")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "error")
    assert "secret" not in answer.text
    assert answer.headers["X-Request-ID"]
