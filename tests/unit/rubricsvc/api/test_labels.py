"""``/v1/labels``."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient


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
