"""``/v1/prompts``."""

from __future__ import annotations

from fastapi.testclient import TestClient


def test_prompts_get_by_either_external_id(filled: TestClient) -> None:
    assert filled.get("/v1/prompts/1").json() == filled.get("/v1/prompts/p/1").json()
    assert filled.get("/v1/prompts/none").status_code == 404
