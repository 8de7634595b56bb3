"""``/v1/verdicts``."""

from __future__ import annotations

from fastapi.testclient import TestClient

from rubricsvc.store.session import Database
from tests.unit.rubricsvc.api.test_jobs import submit, work_off


def test_verdicts_page_filters(filled: TestClient, db: Database) -> None:
    submit(filled)
    work_off(db, fail=1)

    def found(**query: object) -> list[tuple[int, str, str]]:
        rows = filled.get("/v1/verdicts", params=query).json()["data"]  # type: ignore[arg-type]
        return [(row["completion_id"], row["verdict"]["criterion"], row["verdict"]["outcome"]) for row in rows]

    assert len(found()) == len(found(job_id=1)) == 4
    assert found(outcome="failed") == [(1, "b", "failed")]
    assert found(completion_id=2) == [(2, "a", "scored"), (2, "b", "abstained")]
    assert filled.get("/v1/verdicts", params={"job_id": 9}).status_code == 404
    assert filled.get("/v1/verdicts", params={"outcome": "lost"}).status_code == 422
