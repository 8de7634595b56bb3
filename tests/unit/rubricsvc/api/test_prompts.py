"""``/v1/prompts``."""

from __future__ import annotations

from fastapi.testclient import TestClient

BODY = {"prompt": {"messages": [{"role": "user", "content": "Why?"}], "reference": "Because."}}


def test_prompts_add_stores_once(http: TestClient) -> None:
    first = http.post("/v1/prompts", json=BODY)
    again = http.post("/v1/prompts", json={**BODY, "external_id": "x"})
    assert first.status_code == 201
    assert first.json()["id"] == again.json()["id"]
    assert first.json()["prompt"]["reference"] == "Because."
    assert again.json()["external_id"] == "x"
    assert len(http.get("/v1/prompts").json()["data"]) == 1


def test_prompts_get_by_either_external_id(filled: TestClient) -> None:
    assert filled.get("/v1/prompts/1").json() == filled.get("/v1/prompts/p/1").json()
    assert filled.get("/v1/prompts/none").status_code == 404


def test_prompts_get_prefers_id(filled: TestClient) -> None:
    other = {"prompt": {"messages": [{"role": "user", "content": "How?"}]}}
    assert filled.post("/v1/prompts", json=other | {"external_id": "1"}).json()["id"] == 2
    assert filled.get("/v1/prompts/1").json()["external_id"] == "p/1"
    assert filled.post("/v1/prompts", json=other | {"external_id": "77"}).json()["id"] == 2
    assert filled.get("/v1/prompts/77").json()["id"] == 2
