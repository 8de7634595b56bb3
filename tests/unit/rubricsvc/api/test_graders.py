"""``/v1/graders``, without a worker: what is refused, and what is kept. With one: see the integration tests."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from rubricsvc.core.judge import Judge
from rubricsvc.services.local import Validators
from rubricsvc.store import jobs, judges, prompts, rubrics
from rubricsvc.store.session import Database
from tests.rows import add_worker
from tests.unit.rubricsvc.api.conftest import Serve
from workers import checks

STRING = {
    "type": "string_check",
    "name": "same",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
PATHS = ("/v1/graders", "/v1/fine_tuning/alpha/graders")


@pytest.fixture
def http(serve: Serve) -> TestClient:
    return serve(validators=Validators(rubric=checks.validate), grader_seconds=0.01)


@pytest.mark.parametrize("path", PATHS)
def test_graders_validate_returns_grader(http: TestClient, path: str) -> None:
    assert http.post(f"{path}/validate", json={"grader": STRING}).json() == {"grader": STRING}
    bad = http.post(f"{path}/validate", json={"grader": {**STRING, "reference": "{{item.a | upper}}"}})
    assert (bad.status_code, bad.json()["error"]["path"]) == (422, "grader.reference")


@pytest.mark.parametrize("source", ["def grade(:", "x = 1"])
def test_graders_validate_rejects_program_without_grade(http: TestClient, source: str) -> None:
    bad = http.post("/v1/graders/validate", json={"grader": {"type": "python", "name": "p", "source": source}})
    assert (bad.status_code, bad.json()["error"]["path"]) == (422, "grader.source")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"grader": STRING}, "body.model_sample"),
        ({"grader": STRING, "model_sample": 7}, "body.model_sample"),
        ({"grader": STRING, "model_sample": "x", "item": [1]}, "body.item"),
        ({"grader": STRING, "model_sample": "x", "item": {"a": "\0"}}, "body.item.a"),
        ({"grader": "string_check", "model_sample": "x"}, "body.grader"),
        ({"grader": {}, "model_sample": "x"}, "grader.type"),
        ({"grader": {**STRING, "extra": 1}, "model_sample": "x"}, "grader.extra"),
        ({"grader": STRING, "model_sample": "x", "item": {"messages": "hi"}}, "item.messages"),
    ],
)
def test_graders_run_error_has_path(http: TestClient, body: dict[str, Any], path: str) -> None:
    answer = http.post("/v1/graders/run", json=body)
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, path), answer.text


def test_graders_run_unknown_model_is_404(http: TestClient) -> None:
    grader = {"type": "score_model", "name": "s", "model": "gpt-x", "input": [{"role": "user", "content": "?"}]}
    answer = http.post("/v1/graders/run", json={"grader": grader, "model_sample": "x"})
    assert answer.status_code == 404 and "--model gpt-x" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("path", PATHS)
def test_graders_run_without_worker_is_503_and_stored_once(http: TestClient, db: Database, path: str) -> None:
    body = {"grader": STRING, "model_sample": "4", "item": {"answer": "4"}}
    for _ in range(2):
        answer = http.post(f"{path}/run", json=body)
        assert answer.status_code == 503 and "`rubricsvc worker`" in answer.json()["error"]["hint"]
    with db.read() as session:
        assert [job.judge.name for job in jobs.page(session)] == ["checks"]
        assert [row.name for row in rubrics.page(session)] == ["grader same"]
        assert [row.value.item for row in prompts.page(session)] == [{"answer": "4"}]


@pytest.mark.parametrize(("age", "remedy"), [(0.0, "RUBRICSVC_GRADER_SECONDS"), (60.0, "`rubricsvc worker`")])
def test_graders_run_hint_depends_on_running_workers(http: TestClient, db: Database, age: float, remedy: str) -> None:
    """The worker scores something else; one that was last seen a minute ago is not running."""
    add_worker(db, age=age)
    answer = http.post("/v1/graders/run", json={"grader": STRING, "model_sample": "4", "item": {"answer": "4"}})
    assert answer.status_code == 503 and remedy in answer.json()["error"]["hint"], answer.text


def test_graders_require_key(serve: Serve) -> None:
    http = serve(peer="10.0.0.9", host="0.0.0.0")
    for path in PATHS:
        for verb in ("run", "validate"):
            assert http.post(f"{path}/{verb}", json={"grader": STRING, "model_sample": "x"}).status_code == 401


def test_judges_of_model_prefers_name_then_newest(each_db: Database) -> None:
    judge = judges.CHECKS
    with each_db.write() as session:
        for name, model in (("a", "m"), ("b", "m"), ("gpt", "m"), ("c", "gpt")):
            judges.add(session, judge.model_copy(update={"name": name, "model": model}))
        judges.add(session, Judge(name="d", model="m", mode="comparative"))
        assert judges.of_model(session, "gpt").name == "gpt"
        assert judges.of_model(session, "m").name == "gpt"
        assert judges.of_checks(session).id == judges.of_checks(session).id
