"""``/v1/rubrics``."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from rubricsvc.api.request import Validators
from tests.unit.rubricsvc.api.conftest import RUBRIC, Serve
from workers.checks import validate


def test_rubrics_add_versions_by_content(filled: TestClient) -> None:
    changed = {"criteria": [{"key": "a", "text": "Says a, twice."}]}
    second = filled.post("/v1/rubrics", json={"name": "r", "rubric": changed}).json()
    again = filled.post("/v1/rubrics", json={"name": "r", "rubric": RUBRIC}).json()
    assert (second["version"], again["version"]) == (2, 1)
    assert [row["version"] for row in filled.get("/v1/rubrics", params={"name": "r"}).json()["data"]] == [1, 2]
    assert [row["id"] for row in filled.get("/v1/rubrics", params={"prompt_id": 1}).json()["data"]] == [again["id"]]


def test_rubrics_get_by_each_reference(filled: TestClient) -> None:
    one = filled.get("/v1/rubrics/1").json()
    for ref in ("r", "r@1", one["digest"], one["digest"][:8]):
        assert filled.get(f"/v1/rubrics/{ref}").json() == one
    assert filled.get("/v1/rubrics/r@2").status_code == 404


def test_rubrics_add_rejects_invalid(filled: TestClient) -> None:
    for body, status in (
        ({"name": "r", "rubric": {**RUBRIC, "formula": "nonsense"}}, 422),
        ({"name": "a@b", "rubric": RUBRIC}, 422),
        ({"name": "", "rubric": RUBRIC}, 422),
        ({"name": "x", "rubric": RUBRIC, "prompt_id": 99}, 404),
    ):
        assert filled.post("/v1/rubrics", json=body).status_code == status


def test_rubrics_add_for_another_prompt_is_409(filled: TestClient) -> None:
    other = {"prompt": {"messages": [{"role": "user", "content": "How?"}]}}
    assert filled.post("/v1/prompts", json=other).json()["id"] == 2
    answer = filled.post("/v1/rubrics", json={"name": "r", "rubric": RUBRIC, "prompt_id": 2})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


@pytest.mark.parametrize("check", [{"name": "horoscope"}, {"name": "contains", "args": {"n": 1}}])
def test_rubrics_add_rejects_unknown_checks(serve: Serve, check: object) -> None:
    http = serve(validators=Validators(rubric=validate))
    body = {"name": "r", "rubric": {"criteria": [{"key": "a", "text": "t", "check": check}]}}
    answer = http.post("/v1/rubrics", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["path"].startswith("criteria.0.check.")) == (422, True)
    assert error["hint"]
    assert http.post("/v1/rubrics", json={"name": "r", "rubric": RUBRIC}).status_code == 201


@pytest.mark.parametrize(
    "scale",
    [
        {"kind": "ordinal", "levels": [{"label": "good", "value": 0.5}, {"label": "Good", "value": 0.7}]},
        {"kind": "ordinal", "levels": [{"label": "a", "value": 0.5}, {"label": "b", "value": 7}]},
        {"kind": "ordinal", "levels": [{"label": "a", "value": 1}]},
        {"kind": "numeric", "low": -1e308, "high": 1e308},
    ],
)
def test_rubrics_add_reports_only_the_bad_scale(filled: TestClient, scale: object) -> None:
    body = {"name": "r", "rubric": {"criteria": [{"key": "a", "text": "t", "scale": scale}]}}
    answer = filled.post("/v1/rubrics", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 422 and error["path"].startswith("body.rubric.criteria.0.scale")
    assert error["message"].count("body.") == 1  # the other kinds of scale are not listed


def test_rubrics_analysis_is_limited_to_what_was_scored(filled: TestClient) -> None:
    unscored = filled.get("/v1/rubrics/r/analysis")
    assert (unscored.status_code, unscored.json()["error"]["code"]) == (422, "invalid")
    assert filled.get("/v1/rubrics/missing/analysis").status_code == 404
    assert filled.get("/v1/rubrics/r/analysis", params={"job_id": 99}).status_code == 404
