"""Keyset pagination."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


def test_paginate_follows_next_to_the_end(http: TestClient) -> None:
    for n in range(7):
        http.post("/v1/prompts", json={"prompt": {"messages": [{"role": "user", "content": str(n)}]}})
    seen: list[int] = []
    pages: list[int] = []
    after = 0
    while after is not None:
        page = http.get("/v1/prompts", params={"after": after, "limit": 3}).json()
        seen += [row["id"] for row in page["data"]]
        pages.append(len(page["data"]))
        after = page["next"]
    assert seen == list(range(1, 8))
    assert pages == [3, 3, 1]


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 1001}, {"after": -1}, {"limit": "many"}])
def test_paginate_invalid_parameters_are_422(http: TestClient, query: dict[str, object]) -> None:
    answer = http.get("/v1/prompts", params=query)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, f"query.{next(iter(query))}")
