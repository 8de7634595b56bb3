"""``/v1/rubrics``."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from rubricsvc.api.request import Examine
from tests.unit.rubricsvc.api.conftest import RUBRIC, Serve
from workers.checks import validate


def test_new_content_is_a_new_version_and_old_content_is_not(filled: TestClient) -> None:
    changed = {"criteria": [{"key": "a", "text": "Says a, twice."}]}
    second = filled.post("/v1/rubrics", json={"name": "r", "rubric": changed}).json()
    again = filled.post("/v1/rubrics", json={"name": "r", "rubric": RUBRIC}).json()
    assert (second["version"], again["version"]) == (2, 1)
    assert [row["version"] for row in filled.get("/v1/rubrics", params={"name": "r"}).json()["data"]] == [1, 2]
    assert [row["id"] for row in filled.get("/v1/rubrics", params={"prompt_id": 1}).json()["data"]] == [again["id"]]


def test_a_rubric_is_found_by_id_name_version_and_digest(filled: TestClient) -> None:
    one = filled.get("/v1/rubrics/1").json()
    for ref in ("r", "r@1", one["digest"], one["digest"][:8]):
        assert filled.get(f"/v1/rubrics/{ref}").json() == one
    assert filled.get("/v1/rubrics/r@2").status_code == 404


def test_what_cannot_be_a_rubric_is_refused(filled: TestClient) -> None:
    for body, status in (
        ({"name": "r", "rubric": {**RUBRIC, "formula": "nonsense"}}, 422),
        ({"name": "a@b", "rubric": RUBRIC}, 422),
        ({"name": "", "rubric": RUBRIC}, 422),
        ({"name": "x", "rubric": RUBRIC, "prompt_id": 99}, 404),
    ):
        assert filled.post("/v1/rubrics", json=body).status_code == status


@pytest.mark.parametrize(
    ("check", "says"), [({"name": "horoscope"}, "unknown check"), ({"name": "contains", "args": {"n": 1}}, "contains")]
)
def test_checks_that_there_are_not(serve: Serve, check: object, says: str) -> None:
    http = serve(examine=Examine(rubric=validate))
    body = {"name": "r", "rubric": {"criteria": [{"key": "a", "text": "t", "check": check}]}}
    answer = http.post("/v1/rubrics", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["path"].startswith("criteria.0.check.")) == (422, True)
    assert says in error["message"] and error["hint"]
    assert http.post("/v1/rubrics", json={"name": "r", "rubric": RUBRIC}).status_code == 201


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (
            {"kind": "ordinal", "levels": [{"label": "good", "value": 0.5}, {"label": "Good", "value": 0.7}]},
            "two levels have the same label: 'good' and 'Good'; give each level its own",
        ),
        (
            {"kind": "ordinal", "levels": [{"label": "a", "value": 0.5}, {"label": "b", "value": 7}]},
            "expected a number at most 1",
        ),
        ({"kind": "ordinal", "levels": [{"label": "a", "value": 1}]}, "expected a list of at least 2"),
        ({"kind": "numeric", "low": -1e308, "high": 1e308}, "the range from -1e+308 to 1e+308 is not finite; use a smaller one"),
    ],
)
def test_add_reports_an_invalid_scale_once(filled: TestClient, scale: object, says: str) -> None:
    body = {"name": "r", "rubric": {"criteria": [{"key": "a", "text": "t", "scale": scale}]}}
    answer = filled.post("/v1/rubrics", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 422 and error["path"].startswith("body.rubric.criteria.0.scale")
    assert f": {says}" in error["message"] and error["message"].count("body.") == 1
