"""``/v1/completions``."""

from __future__ import annotations

from fastapi.testclient import TestClient


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

    add(filled, (1, "of nobody"))
    assert ids(prompt_id=1) == [1, 2, 3]
    assert ids(policy="q") == [1, 2]
    assert filled.get("/v1/completions", params={"prompt_id": 2}).status_code == 404
    assert filled.get("/v1/completions/99").status_code == 404
