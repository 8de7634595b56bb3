"""Completions, evolutions, labels, prompts, judges, pages, and imports of files."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from rubricsvc import Client
from rubricsvc.client import transport
from rubricsvc.schemas import base
from rubricsvc.services.evolutions import Evolutions
from rubricsvc.store.session import Database
from tests.rows import invalidate
from tests.unit.rubricsvc.api.conftest import JUDGE, Serve
from tests.unit.workers.test_evolution_on_labels import evolved, labelled


def add(http: TestClient, *items: tuple[int, str]) -> tuple[int, object]:
    body = {"completions": [{"prompt_id": prompt, "completion": {"text": text}} for prompt, text in items]}
    answer = http.post("/v1/completions", json=body)
    return answer.status_code, answer.json().get("ids")


def test_completions_add_is_atomic(filled: TestClient) -> None:
    status, _ = add(filled, (1, "new"), (99, "of no prompt"))
    assert status == 404
    assert len(filled.get("/v1/completions").json()["data"]) == 2


def test_completions_page_filters_by_prompt_and_policy(filled: TestClient) -> None:
    def ids(**query: object) -> list[int]:
        return [row["id"] for row in filled.get("/v1/completions", params=query).json()["data"]]  # type: ignore[arg-type]

    add(filled, (1, "without a policy"))
    assert ids(prompt_id=1) == [1, 2, 3] and ids(policy="q") == [1, 2]
    assert filled.get("/v1/completions", params={"prompt_id": 2}).status_code == 404
    assert filled.get("/v1/completions/99").status_code == 404


def test_evolutions_are_listed_and_read(db: Database, serve: Serve) -> None:
    labelled(db)
    found, listed = evolved(db), Evolutions(db).page()
    service = serve()
    assert service.get("/v1/evolutions").json() == listed.model_dump(mode="json")
    assert service.get("/v1/evolutions/1").json() == found.model_dump(mode="json")
    assert service.get("/v1/evolutions?run=first").json()["data"] == []
    assert [service.get(f"/v1/evolutions/{one}").status_code for one in ("2", "x")] == [404, 404]
    with Client("http://localhost", transport=service._transport) as client:
        assert client.evolutions.get(1) == found
        assert client.evolutions.page() == listed


def label(annotator: str, value: float | None, criterion: str = "a", completion: int = 1) -> dict[str, Any]:
    found = {"criterion": criterion, "annotator": annotator, "value": value}
    return {"completion_id": completion, "rubric": "r", "label": found}


def test_labels_add_stores_once(filled: TestClient) -> None:
    sent = [label("ann", 1.0), label("bob", None), label("ann", 0.5, "overall", 2)]
    assert filled.post("/v1/labels", json={"labels": sent}).json() == {"ids": [1, 2, 3]}
    assert filled.post("/v1/labels", json={"labels": sent[:1]}).json() == {"ids": [1]}

    def found(**query: object) -> list[tuple[int, str, float | None]]:
        rows = filled.get("/v1/labels", params=query).json()["data"]  # type: ignore[arg-type]
        return [(row["completion_id"], row["label"]["annotator"], row["label"]["value"]) for row in rows]

    assert found() == [(1, "ann", 1.0), (1, "bob", None), (2, "ann", 0.5)]
    assert found(annotator="ann", completion_id=2) == [(2, "ann", 0.5)]
    assert filled.get("/v1/labels", params={"rubric_id": 9}).status_code == 404


def test_labels_add_rejects_misplaced_atomically(filled: TestClient) -> None:
    for bad, status in ((label("x", 1, "none"), 422), (label("x", 1, completion=9), 404), (label(" ", 1), 422)):
        answer = filled.post("/v1/labels", json={"labels": [label("ann", 1.0), bad]})
        assert answer.status_code == status and answer.json()["error"]["hint"] is not None
    assert filled.get("/v1/labels").json()["data"] == []


def test_paginate_follows_next_to_the_end(http: TestClient) -> None:
    for n in range(7):
        http.post("/v1/prompts", json={"prompt": {"messages": [{"role": "user", "content": str(n)}]}})
    pages: list[list[int]] = []
    after = 0
    while after is not None:
        page = http.get("/v1/prompts", params={"after": after, "limit": 3}).json()
        pages.append([row["id"] for row in page["data"]])
        after = page["next"]
    assert pages == [[1, 2, 3], [4, 5, 6], [7]]


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 1001}, {"after": -1}, {"limit": "many"}])
def test_paginate_invalid_parameters_are_422(http: TestClient, query: dict[str, object]) -> None:
    answer = http.get("/v1/prompts", params=query)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, f"query.{next(iter(query))}")


def test_prompts_get_by_either_external_id(filled: TestClient) -> None:
    assert filled.get("/v1/prompts/1").json() == filled.get("/v1/prompts/p/1").json()
    assert filled.get("/v1/prompts/none").status_code == 404


def test_judges_add_rejects_another_endpoint_and_api_key_env(filled: TestClient) -> None:
    """A judge may have an API key. A client that could change its URL would receive the key."""
    moved = {**JUDGE, "endpoint": {"base_url": "http://127.0.0.1:10/v1"}}
    assert filled.post("/v1/judges", json={"judge": moved}).status_code == 409
    assert filled.post("/v1/judges", json={"judge": JUDGE}).status_code == 201
    thief = {**JUDGE, "name": "t", "endpoint": {"base_url": "http://127.0.0.1:9", "api_key_env": "PATH"}}
    answer = filled.post("/v1/judges", json={"judge": thief})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "judge.endpoint.api_key_env")
    for endpoint in ({}, {"base_url": "https://api.openai.com/v1"}):  # asked with the service's OPENAI_API_KEY
        answer = filled.post("/v1/judges", json={"judge": {**JUDGE, "name": "o", "endpoint": endpoint}})
        assert (answer.status_code, answer.json()["error"]["path"]) == (422, "judge.endpoint.base_url")


def test_judges_refuse_measurements_that_cannot_be(filled: TestClient) -> None:
    deviation = {
        "fingerprint": "f", "source": "x", "measured_at": "2026-01-01T00:00:00Z", "repeats": 2, "completions": 1,
    }  # fmt: skip
    for value in (1e308, -7.0):
        body = {**deviation, "criteria": {}, "reward": {"value": value, "n": 5}}
        assert filled.post("/v1/judges/j/repeatability", json=body).status_code == 422
    suite = {"name": "injections", "measure": "met", "max_rate": 0.05, "passed": True}
    for value, hits in ((1.0, 500), (1.0, 1), (0.0, 1)):
        suites = [{**suite, "rate": {"value": value, "n": 1, "hits": hits}}]
        body = {"digest": "x", "fingerprint": "y", "suites": suites}
        assert filled.post("/v1/judges/j/audits", json=body).status_code == 422
    assert filled.get("/v1/judges/j").json()["audit"] is None


def test_judges_page_lists_a_judge_that_is_not_valid_any_more(filled: TestClient, db: Database) -> None:
    filled.post("/v1/judges", json={"judge": {**JUDGE, "name": "k"}})
    items = [{"completion_id": 1, "rubric": "r"}]
    job = filled.post("/v1/jobs", json={"judge": "j", "items": items}).json()["id"]
    invalidate(db, "j", base_url="http://user:secret@host/v1")
    answer = filled.get("/v1/judges")
    bad, good = answer.json()["data"]
    assert (bad["name"], bad["judge"], "judges add -f" in bad["error"]) == ("j", None, True)
    assert (good["name"], good["judge"]["name"], good["error"]) == ("k", "k", None)
    assert filled.get("/v1/judges/j").json() == bad
    assert "secret" not in answer.text
    assert filled.get(f"/v1/jobs/{job}?summary=true").json()["summary"]["rewards"] == 0


@pytest.mark.parametrize(
    ("change", "path"), [({"engine": "psychic"}, "judge.engine"), ({"template": "../secret"}, "judge.template")]
)
def test_judges_add_rejects_unknown_engine_and_template(http: TestClient, change: dict[str, str], path: str) -> None:
    answer = http.post("/v1/judges", json={"judge": {**JUDGE, **change}})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, path)
    assert http.post("/v1/judges", json={"judge": JUDGE}).status_code == 201


def test_judges_add_rejects_members_keys_and_endpoints(http: TestClient) -> None:
    """As of a judge: a member that could be moved, or given a key, over HTTP would bring its key to somebody else."""

    def answer(**endpoint: str) -> int:
        members = [JUDGE, {"name": "k", "model": "m2", "endpoint": endpoint}]
        return http.post("/v1/judges", json={"judge": {"name": "p", "mode": "panel", "members": members}}).status_code

    assert answer(base_url="http://127.0.0.1:9", api_key_env="PATH") == 422
    assert answer(base_url="http://127.0.0.1:9") == 201 and answer(base_url="http://127.0.0.1:9") == 201
    assert answer(base_url="http://127.0.0.1:10") == 409


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


def test_create_runs_the_validators(http: TestClient) -> None:
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
def test_create_bounds_what_a_file_costs(db: Database, http: TestClient, name: str, content: str, code: str) -> None:
    with (db.read if code in ("too_many_errors", "too_short") else db.write)():  # reading a file blocks no other writer
        answer = http.post("/v1/imports", params={"name": name, "format": "native"}, content=content)
    assert (answer.status_code, answer.json()["error"]["errors"][0]["code"]) == (422, code)


def test_rows_are_deleted_over_http(filled: TestClient) -> None:
    """With a dry run they are counted; who reviewed is the key's name, so that a body cannot say it."""
    filled.post("/v1/labels", json={"labels": [label("ann", 1.0)]})
    counted = filled.delete("/v1/prompts/1", params={"dry_run": True}).json()
    assert counted["rows"] == {"prompts": 1, "completions": 2, "rubrics": 1, "labels": 1}
    assert counted["names"]["rubrics"] == ["1 r@1"] and counted["erased"] is None
    assert filled.delete("/v1/labels/1").json()["rows"] == {"labels": 1}
    named = filled.post("/v1/rubrics/r@1/review", json={"action": "retire", "by": "bob"})
    assert named.status_code == 422 and "by" in named.json()["error"]["path"]
    with Client("http://localhost", transport=filled._transport) as client:
        assert client.rubrics.delete("r", also=["r@1", "1"]).rows == {"rubrics": 1}
        assert client.completions.delete(1).rows == {"completions": 1}
    deleted = filled.delete("/v1/prompts/1").json()
    assert (deleted["rows"], deleted["erased"]) == ({"prompts": 1, "completions": 1}, True)
    assert {noun: filled.delete(f"/v1/{noun}/7").status_code for noun in ("prompts", "rubrics", "jobs", "runs")} == (
        dict.fromkeys(("prompts", "rubrics", "jobs", "runs"), 404)
    )


def test_unknown_fields_of_messages_are_noted(filled: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a request: in a header that the client logs; of a client's own arguments before they are sent."""
    message = {"role": "assistant", "content": "It is.", "Größe": 1, "annotations": [1]}
    new = {"completions": [{"prompt_id": 1, "completion": {"messages": [message, message]}}]}
    notes = list[str]()
    for module in (transport, base):
        monkeypatch.setattr(module.log, "warning", notes.append)
    assert "X-Note" not in filled.get("/v1/completions").headers
    json_type = {"Content-Type": "application/json"}
    with Client("http://localhost", transport=filled._transport) as client:
        body = json.dumps(new).encode()
        client.run(client.completions.request("POST", "completions", body=body, headers=json_type))
        client.completions.add(1, [{"messages": [message, message]}])
    assert notes == ["ignored in messages: Größe, annotations"] * 2
