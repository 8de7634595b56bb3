"""``/v1/rewards``."""

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from rubricsvc.api import rewards
from rubricsvc.core.verdict import Verdict
from rubricsvc.services.jobs import Jobs, unfinished
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import JobRow, PromptRow, RubricRow
from tests.unit.rubricsvc.api.conftest import RUBRIC
from tests.unit.rubricsvc.api.test_jobs import work_off

HOW = {"messages": [{"role": "user", "content": "How?"}]}
INLINE = {"criteria": RUBRIC["criteria"], "min_coverage": 0.5}
BODY = {
    "judge": "j", "prompts": ["p/1", HOW], "rubrics": ["r@1", INLINE],
    "completions": [["two", {"text": "one", "policy": "q"}, "two"], ["three"]], "timeout": 0,
}  # fmt: skip


def post(http: TestClient, *, key: str | None = None, **changes: Any) -> tuple[int, Any]:
    answer = http.post("/v1/rewards", json=BODY | changes, headers={"Idempotency-Key": key} if key else {})
    return answer.status_code, answer.json()


def test_rewards_of_an_unfinished_job_are_202(filled: TestClient) -> None:
    status, body = post(filled)
    assert (status, body["status"], body["workers"], body["judge"]) == (202, "queued", 0, "j")
    assert [one["reward"] for one in body["rewards"]] == [None] * 4
    assert [one["null_reason"] for one in body["rewards"]] == [None] * 4
    assert {one["state"] for one in body["rewards"]} == {"pending"}
    answer = filled.get(f"/v1/rewards/{body['job_id']}")
    assert (answer.status_code, len(answer.json()["rewards"])) == (202, 3)


def test_rewards_are_in_the_order_of_the_request(filled: TestClient, db: Database) -> None:
    names = {"prompt_names": ["", "p/2"], "rubric_names": ["", "own"]}
    job_id = post(filled, **names)[1]["job_id"]
    work_off(db, fail=1, other=Verdict.scored("b", 1.0))
    status, body = post(filled)
    first, _, same, other = body["rewards"]
    assert (status, body["job_id"], body["status"], body["workers"]) == (200, job_id, "completed_with_failures", None)
    texts = [filled.get(f"/v1/completions/{one['completion_id']}").json()["completion"] for one in body["rewards"]]
    assert [one["text"] for one in texts] == ["two", "one", "two", "three"]
    assert [one["prompt_id"] for one in body["rewards"]] == [1, 1, 1, 2]
    assert first == same
    assert [one["rubric"] for one in (first, other)] == ["r@1", "own@1"]
    assert filled.get("/v1/prompts/p%2F2").json()["id"] == filled.get("/v1/rubrics/own").json()["prompt_id"] == 2
    assert filled.get(f"/v1/rewards/{job_id}").status_code == 200
    by_id = {one["completion_id"]: one for one in filled.get(f"/v1/rewards/{job_id}").json()["rewards"]}
    assert by_id == {one["completion_id"]: one for one in body["rewards"]}
    items = {one["completion_id"]: one for one in filled.get(f"/v1/jobs/{job_id}/items").json()["data"]}
    for name in ("reward", "coverage", "formula", "null_reason", "vetoed_by", "rubric_id", "state"):
        assert [one[name] for one in body["rewards"]] == [items[one["completion_id"]][name] for one in body["rewards"]]
    nulls = [one for one in by_id.values() if one["reward"] is None]
    assert 0 < len(nulls) < len(by_id) and all(one["null_reason"] for one in nulls)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"judge": "unknown"}, (404, "not_found", "judge")),
        ({"prompts": ["p/1", "unknown"]}, (404, "not_found", "prompts.1")),
        ({"prompts": ["p/1", 99]}, (404, "not_found", "prompts.1")),
        ({"rubrics": ["r@1", "unknown"]}, (404, "not_found", "rubrics.1")),
        ({"rubrics": ["unknown"]}, (404, "not_found", "rubrics.0")),
        ({"rubrics": ["r@1", "r@1"]}, (422, "invalid", "rubrics.1")),
        ({"rubrics": ["r@1", None]}, (422, "invalid", "prompts.1")),
        ({"rubrics": []}, (422, "invalid", "prompts.1")),
        ({"rubrics": ["r@1", {"criteria": []}]}, (422, "invalid", "rubrics.1.criteria")),
        ({"rubrics": ["r@1", {**INLINE, "formula": "unknown"}]}, (422, "invalid", "rubrics.1.formula")),
        ({"rubrics": ["r@1"] * 3}, (422, "invalid", "rubrics")),
        ({"prompt_names": ["p/1"]}, (422, "invalid", "prompt_names")),
        ({"rubric_names": ["r"]}, (422, "invalid", "rubric_names")),
        ({"rubric_names": ["", "a@b"]}, (422, "invalid", "rubrics.1")),
        ({"completions": [["one"]]}, (422, "invalid", "completions")),
        ({"completions": [["one"], []]}, (422, "invalid", "completions.1")),
        ({"completions": [["one"], [1]]}, (422, "invalid", "completions.1.0")),
        ({"completions": [["one"], ["two", 99]]}, (404, "not_found", "completions.1.1")),
        ({"completions": [["one"], [True]]}, (422, "invalid", "completions.1.0")),
        ({"completions": [["one"], [{"text": 1}]]}, (422, "invalid", "completions.1.0.text")),
        ({"timeout": 51}, (422, "invalid", "timeout")),
    ],
)
def test_rewards_bad_request_has_a_path_and_stores_nothing(
    filled: TestClient, db: Database, changes: dict[str, Any], error: tuple[int, str, str]
) -> None:
    status, body = post(filled, **changes)
    assert (status, body["error"]["code"], body["error"]["path"].removeprefix("body.")) == error
    with db.read() as session:
        assert [len(page_of(session, table)) for table in (PromptRow, RubricRow, JobRow)] == [1, 1, 0]


def test_rewards_refuse_drafts_unless_allowed(filled: TestClient) -> None:
    assert filled.post("/v1/rubrics", json={"name": "d", "rubric": INLINE, "draft": True}).status_code == 201
    status, body = post(filled, rubrics=["r", "d@1"])
    assert (status, body["error"]["code"]) == (409, "not_approved")
    status, body = post(filled, rubrics=["r", "d"])
    assert (status, body["error"]["code"], body["error"]["path"]) == (409, "not_approved", "rubrics.1")
    assert post(filled, rubrics=["r", "d"], allow_drafts=True)[0] == 202


def test_rewards_of_an_unknown_job(filled: TestClient) -> None:
    assert filled.get("/v1/rewards/7").status_code == 404
    assert filled.get("/v1/rewards/7", params={"timeout": "nan"}).status_code == 422


def test_rewards_waits_read_jobs_together(filled: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all are read, one job is cancelled and one deleted; then the database is away."""
    first, ended, deleted = (post(filled, key=key)[1]["job_id"] for key in "abc")
    reads, jobs = list[set[int]](), Jobs(db)

    def read(db: Database, ids: Iterable[int]) -> set[int]:
        reads.append({*ids})
        if reads[-1] == {first, ended, deleted}:
            jobs.cancel(ended)
            jobs.delete(jobs.cancel(deleted).id)
        elif max(map(len, reads)) == 3:
            raise OperationalError("", {}, Exception("away"))
        return unfinished(db, ids)

    async def wait(timeout: float, *job_ids: int) -> list[int]:
        transport = httpx2.ASGITransport(filled.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            urls = [f"/v1/rewards/{job_id}?timeout={timeout}" for job_id in job_ids]
            return [one.status_code for one in await asyncio.gather(*map(client.get, urls))]

    monkeypatch.setattr(rewards, "unfinished", read)
    assert asyncio.run(wait(30, first, first, ended, deleted)) == [503, 503, 200, 404]
    assert {first, ended, deleted} in reads and reads[-1] == {first}
    reads.clear()
    assert asyncio.run(wait(0, first)) == [202] and not reads
    assert asyncio.run(wait(0.1, first)) == [202] and {first} in reads
