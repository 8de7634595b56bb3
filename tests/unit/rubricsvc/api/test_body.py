"""What a body must be: real JSON, known fields, right types, and nothing that a database could not keep."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from rubricsvc.api.body import INLINE_BYTES
from rubricsvc.core import strict_json
from rubricsvc.schemas import MAX_BATCH
from tests.unit.rubricsvc.api.conftest import Serve

JSON = {"Content-Type": "application/json"}


def rubric(criterion: str) -> str:
    return f'{{"name": "r", "rubric": {{"criteria": [{criterion}]}}}}'


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (rubric('{"key": "a", "text": "t", "weight": false}'), "body.rubric.criteria.0.weight"),
        (rubric('{"key": "a", "text": "t", "weight": "1"}'), "body.rubric.criteria.0.weight"),
        (rubric('{"key": "a", "text": "t", "weight": 1e999}'), "body.rubric.criteria.0.weight"),
        (rubric('{"key": "a", "text": "t", "wieght": 1}'), "body.rubric.criteria.0.wieght"),
        (rubric('{"key": "a", "text": "t\\ud800"}'), "body.rubric.criteria.0.text"),
        (rubric('{"key": "a", "text": "t\\u0000"}'), "body.rubric.criteria.0.text"),
        (
            rubric('{"key": "a", "text": "t", "check": {"name": "n", "args": {"x": [1e999]}}}'),
            "body.rubric.criteria.0.check.args.x.0",
        ),
        (rubric('{"key": "a", "text": "t", "weight": 0}'), "body.rubric"),
        (rubric('{"key": "a", "text": "t"}, {"key": "a", "text": "u"}'), "body.rubric"),
        (rubric(""), "body.rubric.criteria"),
        ('{"name": "r"}', "body.rubric"),
        ("[]", "body"),
        ("null", "body"),
    ],
)
def test_body_with_wrong_field_is_422_with_path(http: TestClient, body: str, path: str) -> None:
    answer = http.post("/v1/rubrics", content=body, headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["path"]) == (422, "invalid", path)


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", '{"name": NaN}', '{"name": Infinity}', "[" * 5000, "\xff"),
        '{"name": "r", "name": "s", "rubric": {"criteria": [{"key": "a", "text": "t"}]}}',
        rubric('{"key": "a", "text": "t", "weight": 1, "weight": 5}'),
        rubric('{"key": "a", "text": "t", "check": {"name": "n", "args": {"x": 1, "x": 2}}}'),
    ],
)
def test_body_that_is_not_json_or_repeats_a_key_is_400(http: TestClient, body: str) -> None:
    answer = http.post("/v1/rubrics", content=body.encode("latin-1"), headers=JSON)
    expected = (400, "malformed") if body else (422, "invalid")
    assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert answer.json()["error"]["path"] == "body"


def test_body_requires_json_content_type(http: TestClient) -> None:
    """A cross-site form can send JSON as text/plain without asking the browser's leave."""
    answer = http.post(
        "/v1/rubrics", content=rubric('{"key": "a", "text": "t"}'), headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 400


def test_body_error_shortens_huge_field_names(http: TestClient) -> None:
    answer = http.post("/v1/rubrics", json={"name": "r", "rubric": {}, "x" * 50_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 6000


def test_body_with_too_many_errors_is_422_that_counts_them(http: TestClient) -> None:
    answer = http.post("/v1/rubrics", content=rubric("{}" + ",{}" * 2000), headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["path"]) == (422, "invalid", "body")
    assert "4003" in error["message"]


def test_body_list_fails_at_its_first_invalid_item(http: TestClient) -> None:
    answer = http.post("/v1/labels", content='{"labels": [1, {}, {}]}', headers=JSON)
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "body.labels.0")
    assert "labels.1" not in answer.text


@pytest.mark.parametrize("number", [INLINE_BYTES // 16, INLINE_BYTES])
def test_body_of_any_size_is_validated(filled: TestClient, number: int) -> None:
    """A large body is validated in a thread."""
    assert filled.post("/v1/prompts", json={"prompt": {"messages": [message("x" * number)]}}).status_code == 201
    answer = filled.post("/v1/prompts", json={"prompt": {"messages": [message("x" * number), {}]}})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "body.prompt.messages.1.role")


def message(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def test_body_has_room_for_full_batches() -> None:
    completion = {"text": "t, [", "policy": "p", "step": 1, "sampling": {"temperature": 1.0, "top_p": 1.0, "seed": 1}}
    label = {"criterion": "c", "annotator": "a", "value": 1.0, "note": '"{,'}
    for batch in (
        {"completions": [{"prompt_id": 1, "completion": completion}] * MAX_BATCH},
        {"labels": [{"completion_id": 1, "rubric": "r", "label": label}] * MAX_BATCH},
    ):
        assert strict_json.parse(json.dumps(batch), max_values=strict_json.MAX_VALUES) == batch
    with pytest.raises(strict_json.JsonError) as caught:
        strict_json.parse(json.dumps([0] * (strict_json.MAX_VALUES + 1)), max_values=strict_json.MAX_VALUES)
    assert caught.value.code == "too_many_values"


def test_body_rejects_unauthorized_callers_before_it_is_validated(serve: Serve) -> None:
    answer = serve(require_key=True).post("/v1/labels", content="{" * INLINE_BYTES * 2, headers=JSON)
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["rescore", "retry", "cancel"])
def test_body_is_refused_where_the_route_would_ignore_it(filled: TestClient, path: str) -> None:
    answer = filled.post(f"/v1/jobs/1/{path}", content='{"budget": 1}', headers=JSON)
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "body")
    assert "takes no body" in answer.json()["error"]["message"]
    assert filled.post(f"/v1/jobs/1/{path}").status_code == 404
