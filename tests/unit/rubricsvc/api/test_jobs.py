"""``/v1/jobs``."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, event

from rubricsvc.api import jobs as api
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Usage, Verdict, Vote
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import Database
from tests.rows import item_result
from tests.unit.rubricsvc.api.conftest import RUBRIC

BODY = {"judge": "j", "items": [{"completion_id": 1, "rubric": "r"}, {"completion_id": 2, "rubric": 1}], "name": "try"}


def submit(http: TestClient, body: dict[str, Any] = BODY, key: str | None = None) -> tuple[int, Any]:
    answer = http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key} if key else {})
    return answer.status_code, answer.json()


def work_off(db: Database, *, fail: int) -> None:
    """What a worker does: the first ``fail`` of the items that it claims get a failed verdict."""
    rubric = Rubric.model_validate(RUBRIC)
    with db.write() as session:
        claimed = leases.claim(session, 1, limit=10, worker="w", seconds=60)
        outcomes = []
        for n, lease in enumerate(claimed):
            second = Verdict.failed("b", "timeout") if n < fail else Verdict.abstained("b")
            outcomes.append(item_result(lease, rubric, [Verdict.scored("a", 0.5), second]))
        leases.record(session, outcomes)
        jobs.finish(session)


def test_jobs_submit_and_get(filled: TestClient) -> None:
    status, job = submit(filled)
    assert (status, job["status"], job["name"], job["judge"]) == (201, "queued", "try", "j")
    assert job["progress"]["pending"] == job["progress"]["total"] == 2
    assert job.pop("is_new")
    job["is_new"] = False
    assert filled.get(f"/v1/jobs/{job['id']}").json() == job
    assert job["summary"] is None  # to be read while one waits, it must cost little
    now = filled.get(f"/v1/jobs/{job['id']}", params={"summary": True}).json()["summary"]
    assert (now["rewards"], now["mean_reward"]) == (0, None)
    (listed,) = filled.get("/v1/jobs", params={"status": "queued"}).json()["data"]
    assert listed == {**job, "workers": None}
    assert filled.get("/v1/jobs", params={"status": "completed"}).json()["data"] == []


def test_jobs_submit_same_key_returns_same_job(filled: TestClient) -> None:
    first, again = submit(filled, key="k"), submit(filled, key="k")
    assert (first[0], again[0]) == (201, 200)
    assert first[1] | {"is_new": False} == again[1]
    assert submit(filled, key="other")[1]["id"] != first[1]["id"]


def test_jobs_submit_same_key_other_body_is_409(filled: TestClient) -> None:
    submit(filled, key="k")
    status, answer = submit(filled, {**BODY, "items": BODY["items"][:1]}, key="k")  # type: ignore[index]
    assert (status, answer["error"]["code"]) == (409, "conflict")


@pytest.mark.parametrize("key", [None, "k"])
def test_jobs_submit_and_rescore_with_another_budget_is_409(filled: TestClient, key: str | None) -> None:
    priced = {"name": "paid", "model": "m", "endpoint": {"price": {"prompt": 1, "completion": 1}}}
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
    assert filled.post("/v1/jobs/2/retry", params={"budget": 4}).status_code == 200
    assert filled.post("/v1/jobs/1/rescore", params={"budget": 4}).json()["id"] == 2


def test_jobs_submit_without_key_is_idempotent_by_content(filled: TestClient) -> None:
    assert [submit(filled)[0], submit(filled)[0]] == [201, 200]


@pytest.mark.parametrize(
    "change",
    [
        {"judge": "unknown"},
        {"items": [{"completion_id": 1, "rubric": "none"}]},
        {"items": [{"completion_id": 1, "rubric": "r"}, {"completion_id": 77, "rubric": "r"}]},
    ],
)
def test_jobs_submit_unknown_reference_is_404(filled: TestClient, change: dict[str, Any]) -> None:
    status, answer = submit(filled, {**BODY, **change})
    assert (status, answer["error"]["code"]) == (404, "not_found")
    assert filled.get("/v1/jobs").json()["data"] == []


def test_jobs_items_have_rewards_and_verdicts(filled: TestClient, db: Database) -> None:
    _, job = submit(filled)
    work_off(db, fail=1)
    seen = filled.get(f"/v1/jobs/{job['id']}").json()
    assert seen["status"] == "completed_with_failures"
    assert seen["finished_at"]
    assert (seen["progress"]["done"], seen["progress"]["failed"], seen["progress"]["failed_verdicts"]) == (1, 1, 1)
    failed, done = filled.get(f"/v1/jobs/{job['id']}/items").json()["data"]
    assert (failed["state"], failed["reward"]) == ("failed", None)
    assert (done["state"], done["reward"]) == ("done", None)  # abstained: too little was judged under min_coverage 1
    assert done["null_reason"].endswith("abstained ×1")
    assert [verdict["outcome"] for verdict in failed["verdicts"]] == ["scored", "failed"]
    (listed,) = filled.get("/v1/jobs").json()["data"]
    assert (listed["progress"], listed["progress"]["verdicts"], listed["summary"]) == (seen["progress"], 3, None)
    bare = filled.get(f"/v1/jobs/{job['id']}/items", params={"verdicts": False, "limit": 1}).json()
    assert (len(bare["data"]), bare["data"][0]["verdicts"], bare["next"]) == (1, [], failed["id"])


@pytest.mark.parametrize("keys", ["zam", "maz"])
def test_jobs_items_list_verdicts_in_the_order_of_the_rubric(filled: TestClient, db: Database, keys: str) -> None:
    """The export has the same order. Both versions ask the same questions."""
    for order in ("zam", "maz"):
        criteria = [{"key": key, "text": f"Says {key}."} for key in order]
        filled.post("/v1/rubrics", json={"name": order, "rubric": {"criteria": criteria}, "prompt_id": 1})
        _, job = submit(filled, {"judge": "j", "items": [{"completion_id": 1, "rubric": order}]})
        with db.write() as session:
            (lease,) = leases.claim(session, 1, limit=10, worker="w", seconds=60)
            found = [Verdict.scored(key, 0.5) for key in sorted(order)]
            leases.record(session, [item_result(lease, Rubric.model_validate({"criteria": criteria}), found)])
        if order == keys:
            (item,) = filled.get(f"/v1/jobs/{job['id']}/items").json()["data"]
            assert [verdict["criterion"] for verdict in item["verdicts"]] == list(keys)


def test_jobs_get_has_summary_when_finished(filled: TestClient, db: Database) -> None:
    panel = {"name": "p", "mode": "panel", "members": [{"name": name, "model": name} for name in "ab"]}
    filled.post("/v1/judges", json={"judge": panel})
    _, job = submit(filled, {**BODY, "judge": "p"})
    values = iter([(0.2, 0.4), (0.9, 0.7)])
    with db.write() as session:
        outcomes = []
        for lease in leases.claim(session, 2, limit=10, worker="w", seconds=60):
            votes = [Vote(by=by, outcome="scored", value=value) for by, value in zip("ab", next(values), strict=True)]
            found = [Verdict.scored("a", 0.5, votes=votes, usage=Usage(prompt=10, cached=5)), Verdict.scored("b", 1)]
            outcomes.append(item_result(lease, Rubric.model_validate(RUBRIC), found))
        leases.record(session, outcomes)
        jobs.finish(session)
    told = filled.get(f"/v1/jobs/{job['id']}").json()["summary"]
    assert (told["rewards"], told["cached_share"], told["voting"]) == (
        2,
        0.5,
        {"effective_votes": 1.0, "mean_spread": 0.1},
    )
    assert told["mean_reward"] == pytest.approx(2 / 3)
    assert (told["reasons"], told["vetoed"]) == ({}, {})


def test_jobs_pairs_are_paginated(filled: TestClient, db: Database) -> None:
    second = {"prompt": {"messages": [{"role": "user", "content": "How?"}]}, "external_id": "p/2"}
    filled.post("/v1/prompts", json=second)
    texts = ("so", "and so", "so")
    filled.post(
        "/v1/completions",
        json={"completions": [{"prompt_id": 2, "completion": {"text": t, "step": n}} for n, t in enumerate(texts)]},
    )
    filled.post("/v1/rubrics", json={"name": "free", "rubric": RUBRIC})
    items = [{"completion_id": n, "rubric": "r" if n < 3 else "free"} for n in (1, 2, 3, 4, 5)]
    _, job = submit(filled, {**BODY, "items": items})
    with db.write() as session:
        outcomes = [
            item_result(
                lease,
                Rubric.model_validate(RUBRIC),
                [Verdict.scored("a", lease.completion_id / 5), Verdict.scored("b", 0)],
            )
            for lease in leases.claim(session, 1, limit=10, worker="w", seconds=60)
        ]
        leases.record(session, outcomes)
        jobs.finish(session)
    at = f"/v1/jobs/{job['id']}/pairs"
    pages = [filled.get(at, params={"limit": 1}).json()]
    while pages[-1]["next"] is not None:
        pages.append(filled.get(at, params={"limit": 1, "after": pages[-1]["next"]}).json())
    each = [[(pair["chosen_completion_id"], pair["rejected_completion_id"]) for pair in p["data"]] for p in pages]
    assert each == [[(2, 1)], [(4, 3)], [(5, 4)]]  # 3 and 5 say the same
    (pair,) = pages[0]["data"]
    assert (pair["prompt"], pair["judge"], pair["rubric"]) == ([{"role": "user", "content": "Why?"}], "j", "r@1")
    assert (pair["chosen"], pair["prompt_external_id"]) == ([{"role": "assistant", "content": "two"}], "p/1")
    whole = filled.get(at).json()
    assert (whole["data"], whole["next"]) == ([pair for page in pages for pair in page["data"]], None)
    assert filled.get(at, params={"min_margin": 0.5}).json() == {"data": [], "next": None}


def test_jobs_retry_reopens_failed_items(filled: TestClient, db: Database) -> None:
    _, job = submit(filled)
    work_off(db, fail=1)
    answer = filled.post(f"/v1/jobs/{job['id']}/retry").json()
    assert (answer["reopened"], answer["job"]["status"], answer["job"]["finished_at"]) == (1, "queued", None)
    work_off(db, fail=0)
    assert filled.get(f"/v1/jobs/{job['id']}").json()["status"] == "completed"


def test_jobs_get_does_not_block_writers(filled: TestClient, db: Database) -> None:
    _, job = submit(filled)
    work_off(db, fail=1)
    read: list[bool] = []

    def watch(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT") and " verdicts" in statement:
            read.append(connection.get_execution_options().get("rubricsvc_immediate", False))

    event.listen(db.engine, "before_cursor_execute", watch)
    at = f"/v1/jobs/{job['id']}"
    assert submit(filled)[0] == 200
    for path in ("/retry", "/cancel", "/cancel"):
        assert filled.post(at + path).status_code == 200
    assert read and not any(read)


def test_jobs_cancel(filled: TestClient) -> None:
    _, job = submit(filled)
    cancelled = filled.post(f"/v1/jobs/{job['id']}/cancel").json()
    assert (cancelled["status"], cancelled["progress"]["cancelled"]) == ("cancelled", 2)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("GET", "/items"), ("GET", "/pairs"), ("POST", "/cancel"), ("POST", "/retry")]
)
def test_jobs_unknown_id_is_404(http: TestClient, method: str, path: str) -> None:
    assert http.request(method, f"/v1/jobs/9{path}").status_code == 404


def test_jobs_submit_names_all_missing_fields(filled: TestClient) -> None:
    status, answer = submit(filled, {})
    assert status == 422
    assert {"body.judge", "body.items"} <= set(re.findall(r"body\.\w+", answer["error"]["message"]))


def test_jobs_submit_rejects_rubric_of_other_prompt(filled: TestClient) -> None:
    filled.post("/v1/prompts", json={"prompt": {"messages": [{"role": "user", "content": "What?"}]}})
    filled.post("/v1/rubrics", json={"name": "other", "rubric": RUBRIC, "prompt_id": 2})
    status, answer = submit(filled, {**BODY, "items": [{"completion_id": 1, "rubric": "other"}]})
    assert status == 422
    assert "other@1" in answer["error"]["message"]
    assert filled.get("/v1/jobs").json()["data"] == []


def test_jobs_rescore_submits_the_newest_versions(filled: TestClient) -> None:
    _, job = submit(filled)
    answer = filled.post(f"/v1/jobs/{job['id']}/rescore")
    assert (answer.status_code, answer.json()["id"]) == (200, job["id"])
    heavier = [criterion | {"weight": 7} for criterion in RUBRIC["criteria"]]
    filled.post("/v1/rubrics", json={"name": "r", "rubric": {**RUBRIC, "criteria": heavier}, "prompt_id": 1})
    answer = filled.post(f"/v1/jobs/{job['id']}/rescore")
    assert (answer.status_code, answer.json()["id"], answer.json()["name"]) == (201, job["id"] + 1, "try")
    assert answer.json()["progress"]["total"] == 2
    assert filled.post(f"/v1/jobs/{job['id']}/rescore?rubric=r@1").json()["id"] == job["id"]
    filled.post("/v1/rubrics", json={"name": "other", "rubric": RUBRIC})
    answer = filled.post(f"/v1/jobs/{job['id']}/rescore?rubric=other")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    assert filled.post("/v1/jobs/99/rescore").status_code == 404


def test_jobs_min_coverage_replaces_that_of_the_rubric(filled: TestClient, db: Database) -> None:
    _, strict = submit(filled)
    status, lenient = submit(filled, {**BODY, "min_coverage": 0.2})
    assert (status, strict["min_coverage"], lenient["min_coverage"]) == (201, None, 0.2)
    assert submit(filled, {**BODY, "min_coverage": 0.2})[0] == 200
    assert submit(filled, {**BODY, "min_coverage": 1.5})[0] == 422
    work_off(db, fail=1)
    rewards = [
        [item["reward"] for item in filled.get(f"/v1/jobs/{job['id']}/items").json()["data"]]
        for job in (strict, lenient)
    ]
    assert set(rewards[0]) == {None} and None not in rewards[1]


def test_jobs_rescore_with_min_coverage_asks_no_judge(filled: TestClient, db: Database) -> None:
    _, job = submit(filled)
    work_off(db, fail=1)
    path = f"/v1/jobs/{job['id']}/rescore"
    response = filled.post(path, params={"min_coverage": 0.2})
    rescored = response.json()
    assert (response.status_code, rescored["min_coverage"], rescored["status"]) == (201, 0.2, "completed_with_failures")
    assert rescored["progress"] | {"pending": 0, "done": 1, "failed": 1} == rescored["progress"]
    assert rescored["summary"]["rewards"] == 2
    assert filled.post(path, params={"min_coverage": 0.2}).status_code == 200
    assert filled.post(path).json()["id"] == job["id"]
    again = filled.post(f"/v1/jobs/{rescored['id']}/rescore", params={"min_coverage": 0.2})
    assert (again.status_code, again.json()["id"]) == (200, rescored["id"])


def test_jobs_items_sort_by_reward(filled: TestClient, db: Database) -> None:
    """Each page continues after an item; one without a reward is last."""
    _, job = submit(filled)
    rubric, values = Rubric.model_validate(RUBRIC), iter([0.9, 0.2])
    with db.write() as session:
        for lease in leases.claim(session, 1, limit=10, worker="w", seconds=60):
            value = next(values)
            leases.record(session, [item_result(lease, rubric, [Verdict.scored(key, value) for key in "ab"])])
    path = f"/v1/jobs/{job['id']}/items"
    first = filled.get(path, params={"sort": "reward", "limit": 1, "verdicts": False}).json()
    second = filled.get(path, params={"sort": "reward", "limit": 1, "after": first["next"]}).json()
    assert [first["data"][0]["reward"], second["data"][0]["reward"]] == pytest.approx([0.2, 0.9])
    assert second["next"] is None and first["data"][0]["policy"] == "q"
    assert [item["id"] for item in filled.get(path, params={"sort": "-reward"}).json()["data"]] == [1, 2]
    assert filled.get(path, params={"policy": "other"}).json()["data"] == []
    unknown = filled.get(path, params={"sort": "-reward", "after": 99})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert filled.get(path, params={"sort": "text"}).status_code == 422


def test_jobs_compare_pairs_completions(filled: TestClient, db: Database) -> None:
    submit(filled)
    work_off(db, fail=0)
    found = filled.get("/v1/jobs/1/compare/1").json()
    assert (found["paired_by"], found["differs"], found["a"]["job_id"]) == ("completion", [], 1)
    assert found["left_out"] == [{"job_ids": [1], "reason": "no_reward", "count": 2}]
    assert filled.get("/v1/jobs/1/compare/9").json()["error"]["code"] == "not_found"
    for number in (1, 2):
        submit(filled, {**BODY, "items": BODY["items"][number - 1 : number]})  # type: ignore[index]
    apart = filled.get("/v1/jobs/2/compare/3", params={"by": "completion"})
    assert (apart.status_code, apart.json()["error"]["code"], apart.json()["error"]["path"]) == (422, "invalid", "by")
    assert filled.get("/v1/jobs/1/compare/1", params={"by": "word"}).status_code == 422


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


def test_jobs_report_is_a_page(filled: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _, job = submit(filled)
    work_off(db, fail=1)
    path = f"/v1/jobs/{job['id']}/report"
    response = filled.get(path, params={"completions": 1})
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.text.startswith("<!doctype html>") and response.text.count("<article") == 1
    assert filled.get("/v1/jobs/99/report").status_code == 404
    monkeypatch.setattr(api, "MAX_REPORT_ITEMS", 1)
    assert (filled.get(path).status_code, filled.get(path).json()["error"]["code"]) == (422, "invalid")


def test_jobs_submit_refuses_drafts_unless_allowed(filled: TestClient) -> None:
    draft = {"name": "d", "rubric": {"criteria": [{"key": "a", "text": "Says d."}]}, "draft": True}
    assert filled.post("/v1/rubrics", json=draft).json()["state"] == "draft"
    for ref in ("d", "d@1", 2):
        body = {"judge": "j", "items": [{"completion_id": 1, "rubric": ref}]}
        refused = filled.post("/v1/jobs", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_approved")
    assert filled.post("/v1/jobs", json=body | {"allow_drafts": True}).status_code == 201
