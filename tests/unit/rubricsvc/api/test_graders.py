"""``/v1/graders``, without a worker: what is refused, and what is kept. With one: see the integration tests."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import JobRow, PromptRow, RubricRow
from tests.unit.rubricsvc.api.conftest import Serve

STRING = {
    "type": "string_check", "name": "same", "input": "{{sample.output_text}}", "reference": "{{item.answer}}",
    "operation": "eq",
}  # fmt: skip
PATHS = ("/v1/graders", "/v1/fine_tuning/alpha/graders")


@pytest.fixture
def http(serve: Serve) -> TestClient:
    return serve(grader_seconds=0.01)


def test_graders_validate_returns_grader(http: TestClient) -> None:
    for path in PATHS:
        assert http.post(f"{path}/validate", json={"grader": STRING}).json() == {"grader": STRING}
        bad = http.post(f"{path}/validate", json={"grader": {**STRING, "reference": "{{item.a | upper}}"}})
        assert (bad.status_code, bad.json()["error"]["path"]) == (422, "grader.reference")
    for source in ("def grade(:", "x = 1"):
        bad = http.post("/v1/graders/validate", json={"grader": {"type": "python", "name": "p", "source": source}})
        assert (bad.status_code, bad.json()["error"]["path"]) == (422, "grader.source")


def test_graders_run_error_has_path(http: TestClient) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"grader": STRING}, "body.model_sample"),
        ({"grader": STRING, "model_sample": 7}, "body.model_sample"),
        ({"grader": STRING, "model_sample": "x", "item": [1]}, "body.item"),
        ({"grader": STRING, "model_sample": "x", "item": {"a": "\0"}}, "body.item.a"),
        ({"grader": "string_check", "model_sample": "x"}, "body.grader"),
        ({"grader": {}, "model_sample": "x"}, "grader.type"),
        ({"grader": {**STRING, "extra": 1}, "model_sample": "x"}, "grader.extra"),
        ({"grader": STRING, "model_sample": "x", "item": {"messages": "hi"}}, "item.messages"),
    ]
    for body, path in cases:
        answer = http.post("/v1/graders/run", json=body)
        assert (answer.status_code, answer.json()["error"]["path"]) == (422, path), answer.text


@pytest.mark.parametrize("path", PATHS)
def test_graders_run_without_worker_is_503_and_stored_once(http: TestClient, db: Database, path: str) -> None:
    body = {"grader": STRING, "model_sample": "4", "item": {"answer": "4"}}
    for _ in range(2):
        answer = http.post(f"{path}/run", json=body)
        assert answer.status_code == 503 and "`rubricsvc worker`" in answer.json()["error"]["hint"]
    with db.read() as session:
        assert [job.judge.name for job in page_of(session, JobRow)] == ["checks"]
        assert [row.name for row in page_of(session, RubricRow)] == ["grader same"]
        assert [row.value.item for row in page_of(session, PromptRow)] == [{"answer": "4"}]


def test_graders_are_drafts_where_all_rubrics_are(serve: Serve, db: Database) -> None:
    http = serve(require_approval="all", grader_seconds=0.01)
    assert http.post("/v1/graders/run", json={"grader": STRING, "model_sample": "4"}).status_code == 503
    with db.read() as session:
        assert [(row.state, row.added_by) for row in page_of(session, RubricRow)] == [("draft", "anonymous")]


def test_graders_require_key(serve: Serve) -> None:
    http = serve(peer="10.0.0.9", host="0.0.0.0")
    for path in PATHS:
        for verb in ("run", "validate"):
            assert http.post(f"{path}/{verb}", json={"grader": STRING, "model_sample": "x"}).status_code == 401
