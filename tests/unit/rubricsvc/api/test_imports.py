"""``/v1/imports``, and the client's method for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from rubricsvc.services.local import Validators
from tests.unit.rubricsvc.api.conftest import Serve
from workers import checks

RECORD = '{"prompt": "Q", "criteria": ["a"], "completions": ["b"], "labels": {"c1": 1}}\n'
INVALID = '{"prompt": 5, "criteria": ["a"]}\n'


def test_create_imports_a_file_once(http: TestClient) -> None:
    first = http.post("/v1/imports", content=RECORD)
    assert first.status_code == 201
    counts = {"prompts": 1, "rubrics": 1, "completions": 1, "labels": 1}
    assert first.json()["new"] == counts
    assert [first.json()[name] for name in ("rubric_ids", "completion_ids", "label_ids")] == [[1], [1], [1]]
    again = http.post("/v1/imports?name=file.jsonl&format=native", content=RECORD).json()
    assert again["existing"] == counts and again["completion_ids"] == [1]


def test_create_rejects_an_invalid_file_whole_or_skips_invalid_records(http: TestClient) -> None:
    answer = http.post("/v1/imports", content=RECORD + INVALID)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "format")
    (problem,) = error["errors"]
    assert (problem["line"], problem["path"], problem["code"]) == (2, "prompt", "string_type")
    assert http.get("/v1/prompts").json()["data"] == []
    imported = http.post("/v1/imports?skip_invalid=true", content=RECORD + INVALID).json()
    assert imported["new"]["prompts"] == 1 and [one["line"] for one in imported["skipped"]] == [2]


def test_create_runs_the_validators(serve: Serve) -> None:
    http = serve(validators=Validators(rubric=checks.validate))
    answer = http.post("/v1/imports?name=r.yaml", content="criteria:\n- {text: a, check: horoscope}\n")
    (problem,) = answer.json()["error"]["errors"]
    assert (problem["line"], problem["code"]) == (2, "check")
    assert problem["path"].startswith("criteria[0].check")


def test_create_never_reads_files_of_the_server(http: TestClient, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "Q?"}\n')
    for name in (tmp_path, tmp_path / "a.jsonl"):
        answer = http.post("/v1/imports", params={"name": str(name), "format": "native"}, content="{}")
        assert [one["code"] for one in answer.json()["error"]["errors"]] == ["missing"]


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.jsonl", '{"criteria": ["a"]}\n' * 20_001, "too_many_records"),
        ("a.json", "[" * 250_001, "too_many_values"),
        ("a.yaml", "- a\n" * 250_001, "too_many_values"),
        ("a.json", '{"criteria": [' + "1," * 2000 + "1]}", "too_many_errors"),
        ("a.jsonl", '{"criteria": []}\n' * 10_001, "too_short"),
    ],
)
def test_create_bounds_what_a_file_costs(http: TestClient, name: str, content: str, code: str) -> None:
    answer = http.post("/v1/imports", params={"name": name, "format": "native"}, content=content)
    assert (answer.status_code, answer.json()["error"]["errors"][0]["code"]) == (422, code)
