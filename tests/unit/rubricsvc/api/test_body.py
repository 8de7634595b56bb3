"""What a body must be: real JSON, known fields, right types, and nothing that a database could not keep."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

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


@pytest.mark.parametrize("body", ["", "{", '{"name": NaN}', '{"name": Infinity}', "[" * 5000, "\xff"])
def test_body_that_is_not_json_is_400(http: TestClient, body: str) -> None:
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


def test_body_trajectory_text_defaults_to_last_message(filled: TestClient) -> None:
    messages = [{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "last"}]
    sent = {"completions": [{"prompt_id": 1, "completion": {"messages": messages}}]}
    (id_,) = filled.post("/v1/completions", json=sent).json()["ids"]
    assert filled.get(f"/v1/completions/{id_}").json()["completion"]["text"] == "last"


def test_body_message_requires_content(filled: TestClient) -> None:
    sent = {"completions": [{"prompt_id": 1, "completion": {"messages": [{"role": "assistant"}]}}]}
    answer = filled.post("/v1/completions", json=sent)
    assert answer.status_code == 422
    assert answer.json()["error"]["path"] == "body.completions.0.completion.messages.0.content"


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "r", "name": "s", "rubric": {"criteria": [{"key": "a", "text": "t"}]}}',
        rubric('{"key": "a", "text": "t", "weight": 1, "weight": 5}'),
        rubric('{"key": "a", "text": "t", "check": {"name": "n", "args": {"x": 1, "x": 2}}}'),
    ],
)
def test_body_rejects_duplicate_keys(http: TestClient, body: str) -> None:
    answer = http.post("/v1/rubrics", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")


def test_body_error_shortens_huge_field_names(http: TestClient) -> None:
    answer = http.post("/v1/rubrics", json={"name": "r", "rubric": {}, "x" * 50_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 6000
