"""``/v1/jobs``."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, event

from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from tests.rows import item_result
from tests.unit.rubricsvc.api.conftest import RUBRIC

BODY = {"judge": "j", "items": [{"completion_id": 1, "rubric": "r"}, {"completion_id": 2, "rubric": 1}], "name": "try"}


def submit(http: TestClient, body: dict[str, Any] = BODY, key: str | None = None) -> tuple[int, Any]:
    answer = http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key} if key else {})
    return answer.status_code, answer.json()


def work_off(db: Database, *, fail: int, other: Verdict | None = None) -> None:
    """What a worker does: the first ``fail`` of the items that it claims get a failed verdict."""
    rubric = Rubric.model_validate(RUBRIC)
    with db.write() as session:
        claimed = leases.claim(session, 1, limit=10, worker="w", seconds=60)
        outcomes = []
        for n, lease in enumerate(claimed):
            second = Verdict.failed("b", "timeout") if n < fail else other or Verdict.abstained("b")
            outcomes.append(item_result(lease, rubric, [Verdict.scored("a", 0.5), second]))
        leases.record(session, outcomes)
        leases.finish(session)


def test_jobs_submit_and_get(filled: TestClient) -> None:
    status, job = submit(filled)
    assert (status, job["status"], job["name"], job["judge"]) == (201, "queued", "try", "j")
    assert job["progress"]["pending"] == job["progress"]["total"] == 2 and job.pop("is_new")
    job["is_new"] = False
    assert filled.get(f"/v1/jobs/{job['id']}").json() == job
    assert job["summary"] is None  # to be read while one waits, it must cost little
    now = filled.get(f"/v1/jobs/{job['id']}", params={"summary": True}).json()["summary"]
    assert (now["rewards"], now["mean_reward"]) == (0, None)
    (listed,) = filled.get("/v1/jobs", params={"status": "queued"}).json()["data"]
    assert listed == {**job, "workers": None}
    assert filled.get("/v1/jobs", params={"status": "completed"}).json()["data"] == []


def test_jobs_submit_same_key_or_without_one_same_content_returns_same_job(filled: TestClient) -> None:
    first, again = submit(filled, key="k"), submit(filled, key="k")
    assert (first[0], again[0]) == (201, 200) and first[1] | {"is_new": False} == again[1]
    assert submit(filled, key="other")[1]["id"] != first[1]["id"]
    assert [submit(filled)[0], submit(filled)[0]] == [201, 200]


@pytest.mark.parametrize("key", [None, "k"])
def test_jobs_submit_and_rescore_with_another_budget_is_409(filled: TestClient, key: str | None) -> None:
    priced = {
        "name": "paid",
        "model": "m",
        "endpoint": {"base_url": "http://x/v1", "price": {"prompt": 1, "completion": 1}},
    }
    assert filled.post("/v1/judges", json={"judge": priced}).status_code == 201
    body = {**BODY, "judge": "paid"}
    status, job = submit(filled, {**body, "budget": 5}, key)
    assert (status, job["budget"]) == (201, 5)
    assert submit(filled, {**body, "budget": 5.0}, key)[0] == 200
    for other in ({"budget": 4}, {"budget": 50}, {}):
        status, answer = submit(filled, body | other, key)
        assert (status, answer["error"]["code"]) == (409, "conflict"), other
        assert "jobs retry 1 --budget" in answer["error"]["hint"]
    assert [filled.post("/v1/jobs/1/rescore", params={"budget": n}).status_code for n in (5, 6)] == [200, 409]
    assert filled.post("/v1/jobs/1/rescore").status_code == 200, "which is the job itself"
    changed = {"criteria": [{**RUBRIC["criteria"][0], "weight": 9}, RUBRIC["criteria"][1]]}
    assert filled.post("/v1/rubrics", json={"name": "r", "rubric": changed, "prompt_id": 1}).status_code == 201
    found = [filled.post("/v1/jobs/1/rescore", params={"budget": n}).status_code for n in (3, 3, 4)]
    assert found == [201, 200, 409]
    again = filled.post("/v1/jobs/1/rescore", params={"budget": 3}).json()["id"]
    assert filled.post(f"/v1/jobs/{again}/retry", params={"budget": 4}).status_code == 200


def test_jobs_items_have_rewards_and_verdicts(filled: TestClient, db: Database) -> None:
    _, job = submit(filled)
    work_off(db, fail=1)
    seen = filled.get(f"/v1/jobs/{job['id']}").json()
    assert seen["status"] == "completed_with_failures" and seen["finished_at"]
    assert (seen["progress"]["done"], seen["progress"]["failed"], seen["progress"]["failed_verdicts"]) == (1, 1, 1)
    failed, done = filled.get(f"/v1/jobs/{job['id']}/items").json()["data"]
    assert (failed["state"], failed["reward"], failed["text"]) == ("failed", None, "one")
    assert (done["state"], done["reward"]) == ("done", None)  # abstained: too little was judged under min_coverage 1
    assert done["null_reason"].endswith("abstained ×1")
    assert [verdict["outcome"] for verdict in failed["verdicts"]] == ["scored", "failed"]
    (listed,) = filled.get("/v1/jobs").json()["data"]
    assert (listed["progress"], listed["progress"]["verdicts"], listed["summary"]) == (seen["progress"], 3, None)
    bare = filled.get(f"/v1/jobs/{job['id']}/items", params={"verdicts": False, "limit": 1}).json()
    assert (len(bare["data"]), bare["data"][0]["verdicts"], bare["next"]) == (1, [], failed["id"])


def test_jobs_get_does_not_block_writers(filled: TestClient, db: Database) -> None:
    _, job = submit(filled)
    work_off(db, fail=1)
    read: list[bool] = []

    def watch(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT") and " verdicts" in statement:
            read.append("begin" in connection.get_execution_options())

    event.listen(db.engine, "before_cursor_execute", watch)
    at = f"/v1/jobs/{job['id']}"
    assert submit(filled)[0] == 200
    for path in ("/retry", "/cancel", "/cancel"):
        assert filled.post(at + path).status_code == 200
    assert read and not any(read)


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/items"), ("POST", "/cancel"), ("POST", "/retry")])
def test_jobs_unknown_id_is_404(http: TestClient, method: str, path: str) -> None:
    assert http.request(method, f"/v1/jobs/9{path}").status_code == 404


def test_jobs_items_default_to_the_rubrics_of_the_prompt(filled: TestClient, db: Database) -> None:
    filled.post("/v1/rubrics", json={"name": "r", "rubric": {**RUBRIC, "min_coverage": 0.5}, "prompt_id": 1})
    filled.post("/v1/rubrics", json={"name": "other", "rubric": RUBRIC, "prompt_id": 1})
    filled.post("/v1/rubrics", json={"name": "any", "rubric": RUBRIC})
    status, job = submit(filled, {"judge": "j", "items": [{"completion_id": 1}, {"completion_id": 2, "rubric": "any"}]})
    assert status == 201
    items = filled.get(f"/v1/jobs/{job['id']}/items").json()["data"]
    assert [(item["completion_id"], item["rubric_id"]) for item in items] == [(1, 2), (1, 3), (2, 4)]


def test_jobs_items_without_a_rubric_are_refused(filled: TestClient) -> None:
    filled.post("/v1/prompts", json={"prompt": {"messages": [{"role": "user", "content": "No rubric?"}]}})
    filled.post("/v1/completions", json={"completions": [{"prompt_id": 2, "completion": {"text": "so"}}]})
    status, answer = submit(filled, {"judge": "j", "items": [{"completion_id": 1}, {"completion_id": 3}]})
    assert (status, answer["error"]["path"]) == (422, "items.1")
    assert submit(filled, {"judge": "j", "items": [{"completion_id": 99}]})[0] == 404


def test_verdicts_page_filters(filled: TestClient, db: Database) -> None:
    submit(filled)
    work_off(db, fail=1)

    def found(**query: object) -> list[tuple[int, str, str]]:
        rows = filled.get("/v1/verdicts", params=query).json()["data"]  # type: ignore[arg-type]
        return [(row["completion_id"], row["verdict"]["criterion"], row["verdict"]["outcome"]) for row in rows]

    assert len(found()) == len(found(job_id=1)) == 4 and found(outcome="failed") == [(1, "b", "failed")]
    assert found(completion_id=2) == [(2, "a", "scored"), (2, "b", "abstained")]
    assert filled.get("/v1/verdicts", params={"job_id": 9}).status_code == 404
    assert filled.get("/v1/verdicts", params={"outcome": "lost"}).status_code == 422
