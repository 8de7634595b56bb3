"""Every error in one shape."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import DataError, OperationalError

from rubricsvc.api.errors import from_exception
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError


def test_errors_of_routing_have_error_body(http: TestClient) -> None:
    for method, path, expected in (
        ("GET", "/v1/nothing", (404, "not_found")),
        ("PUT", "/v1/jobs", (405, "method_not_allowed")),
    ):
        answer = http.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == expected
        assert set(answer.json()["error"]) == {"code", "message", "hint", "path"}


def test_errors_database_unavailable_is_503_with_retry_after(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("server closed the connection"))

    monkeypatch.setattr("rubricsvc.services.completions.page_of", away)
    answer = http.get("/v1/prompts")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert "SELECT" not in answer.text


def test_from_exception_maps_to_error_classes() -> None:
    own = ConflictError("x")
    assert from_exception(own) is own
    assert isinstance(from_exception(DataError("INSERT", {}, Exception("too long"))), InvalidError)
    assert isinstance(from_exception(OverflowError()), InvalidError)
    assert isinstance(from_exception(OperationalError("x", {}, Exception())), UnavailableError)
    assert from_exception(RuntimeError("secret")).status == 500
    assert "secret" not in from_exception(RuntimeError("secret")).message


@pytest.mark.parametrize(
    "path", ["jobs/{}", "completions/{}", "jobs/{}/items", "prompts?after={}", "verdicts?job_id={}"]
)
def test_path_id_requires_plain_digits(filled: TestClient, path: str) -> None:
    for number in ["1_0", "１", "+1", "1.0", " 1", "0x1"]:
        answer = filled.get(f"/v1/{path.format(quote(number))}")
        assert answer.status_code == (422 if "?" in path else 404)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/nothing", None),
        ("PUT", "/v1/jobs", None),
        ("GET", "/v1/jobs/x", None),
        ("GET", "/v1/jobs?limit=0", None),
        ("GET", "/v1/jobs?status=bad", None),
        ("GET", "/v1/prompts/none", None),
        ("POST", "/v1/jobs", {}),
        ("POST", "/v1/jobs", {"judge": "j", "items": []}),
        ("POST", "/v1/jobs", {"judge": "j", "items": [{"completion_id": "1", "rubric": "r"}]}),
        ("POST", "/v1/rubrics", {"name": "r", "rubric": {"criteria": []}}),
        ("POST", "/v1/rubrics", {"name": "r", "rubric": {"criteria": [{"key": "a", "text": "t"}], "formula": "x"}}),
        ("POST", "/v1/rubrics", {"name": "a@b", "rubric": {"criteria": [{"key": "a", "text": "t"}]}}),
        ("POST", "/v1/completions", {"completions": [{"prompt_id": 99, "completion": {"text": "x"}}]}),
        ("POST", "/v1/completions", {"completions": [{"prompt_id": 1, "completion": {"policy": "x" * 201}}]}),
        ("POST", "/v1/judges", {"judge": {"name": "1", "model": "m"}}),
        ("POST", "/v1/judges", {"judge": {"name": "k", "model": "m", "sampling": {"top_p": 2.0}}}),
    ],
)
def test_errors_have_message_and_hint(filled: TestClient, method: str, path: str, body: object) -> None:
    answer = filled.request(method, path, json=body)
    error = answer.json()["error"]
    assert 400 <= answer.status_code < 500
    assert error["message"] and error["hint"], error
    assert "Value error" not in error["message"]
