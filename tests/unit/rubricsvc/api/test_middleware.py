"""What every request passes through."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.unit.rubricsvc.api.conftest import Serve


def test_request_context_accepts_or_creates_id(http: TestClient) -> None:
    assert http.get("/healthz", headers={"X-Request-ID": "mine-1"}).headers["X-Request-ID"] == "mine-1"
    made = http.get("/healthz", headers={"X-Request-ID": "bad id\tor attack"}).headers["X-Request-ID"]
    assert len(made) == 32
    assert http.get("/v1/prompts/1").headers["X-Request-ID"]


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

    monkeypatch.setattr("rubricsvc.services.completions.page_of", broken)
    answer = http.get("/v1/prompts")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "error")
    assert "secret" not in answer.text
    assert answer.headers["X-Request-ID"]
