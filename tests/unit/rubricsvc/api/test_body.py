"""What a body must be: real JSON, known fields, right types, and nothing that a database could not keep."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

JSON = {"Content-Type": "application/json"}


def rubric(criterion: str) -> str:
    return f'{{"name": "r", "rubric": {{"criteria": [{criterion}]}}}}'


@pytest.mark.parametrize(
    ("body", "path", "says"),
    [
        (rubric('{"key": "a", "text": "t", "weight": false}'), "body.rubric.criteria.0.weight", "expected a number"),
        (rubric('{"key": "a", "text": "t", "weight": "1"}'), "body.rubric.criteria.0.weight", "expected a number"),
        (rubric('{"key": "a", "text": "t", "weight": 1e999}'), "body.rubric.criteria.0.weight", "too large"),
        (rubric('{"key": "a", "text": "t", "wieght": 1}'), "body.rubric.criteria.0.wieght", "unknown field"),
        (rubric('{"key": "a", "text": "t\\u0000"}'), "body.rubric.criteria.0.text", "U+0000"),
        (
            rubric('{"key": "a", "text": "t", "check": {"name": "n", "args": {"x": [1e999]}}}'),
            "body.rubric.criteria.0.check.args.x.0",
            "too large",
        ),
        (rubric('{"key": "a", "text": "t", "weight": 0}'), "body.rubric", "all weights are zero"),
        (rubric('{"key": "a", "text": "t"}, {"key": "a", "text": "u"}'), "body.rubric", "duplicate criterion key"),
        (rubric(""), "body.rubric.criteria", "at least 1"),
        ('{"name": "r"}', "body.rubric", "is missing"),
        ("[]", "body", "expected a mapping"),
        ("null", "body", "expected a mapping"),
    ],
)
def test_a_wrong_body_is_422_with_the_path_of_the_field(http: TestClient, body: str, path: str, says: str) -> None:
    answer = http.post("/v1/rubrics", content=body, headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["path"]) == (422, "invalid", path)
    assert says in error["message"]


@pytest.mark.parametrize(
    "body", ["", "{", '{"name": NaN}', '{"name": Infinity}', '{"name": "\\ud800"}', "[" * 5000, "\xff"]
)
def test_what_is_not_json_is_400_or_missing(http: TestClient, body: str) -> None:
    answer = http.post("/v1/rubrics", content=body.encode("latin-1"), headers=JSON)
    expected = (400, "malformed") if body else (422, "invalid")
    assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert answer.json()["error"]["path"] == "body"


def test_a_body_must_say_that_it_is_json(http: TestClient) -> None:
    """A cross-site form can send JSON as text/plain without asking the browser's leave."""
    answer = http.post(
        "/v1/rubrics", content=rubric('{"key": "a", "text": "t"}'), headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 400
    assert "Content-Type" in answer.json()["error"]["message"]


def test_a_trajectory_may_stand_for_its_last_answer(filled: TestClient) -> None:
    messages = [{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "last"}]
    sent = {"completions": [{"prompt_id": 1, "completion": {"messages": messages}}]}
    (id_,) = filled.post("/v1/completions", json=sent).json()["ids"]
    assert filled.get(f"/v1/completions/{id_}").json()["completion"]["text"] == "last"


def test_a_message_without_content_is_refused(filled: TestClient) -> None:
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
def test_a_key_that_stands_twice_is_refused(http: TestClient, body: str) -> None:
    answer = http.post("/v1/rubrics", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")
    assert "stands twice in one object" in answer.json()["error"]["message"]


def test_a_huge_name_of_a_field_is_not_sent_back_whole(http: TestClient) -> None:
    answer = http.post("/v1/rubrics", json={"name": "r", "rubric": {}, "x" * 50_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 6000
