"""``/v1/rubrics``."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from rubricsvc.core.rubric import NumberRange
from rubricsvc.core.rubric_analysis import ExampleTest, RubricTest, VerdictTest
from rubricsvc.store import keys
from rubricsvc.store.session import Database
from tests.unit.rubricsvc.api.conftest import RUBRIC, Serve


def test_rubrics_add_rejects_invalid(filled: TestClient) -> None:
    for body, status in (
        ({"name": "r", "rubric": {**RUBRIC, "formula": "nonsense"}}, 422),
        ({"name": "a@b", "rubric": RUBRIC}, 422),
        ({"name": "", "rubric": RUBRIC}, 422),
        ({"name": "x", "rubric": RUBRIC, "prompt_id": 99}, 404),
    ):
        assert filled.post("/v1/rubrics", json=body).status_code == status


def sender(http: TestClient, db: Database) -> Callable[..., tuple[int, Any]]:
    """Returns what sends a request with the key of ann or bob."""
    with db.write() as session:
        secrets = {name: keys.create(session, name)[1] for name in ("ann", "bob")}

    def send(person: str, method: str, path: str, **body: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {secrets[person]}"}
        answer = http.request(method, f"/v1/rubrics{path}", headers=headers, json=body or None)
        return answer.status_code, answer.json()

    return send


def test_rubrics_review_by_key_name(serve: Serve, db: Database) -> None:
    send = sender(serve(require_key=True), db)
    status, added = send("ann", "POST", "", name="a/r", rubric=RUBRIC, draft=True)
    assert (status, added["state"], added["added_by"], added["parent_id"]) == (201, "draft", "ann", None)
    status, problem = send("ann", "GET", "/a/r")
    assert (status, problem["error"]["code"]) == (409, "not_approved")
    assert send("ann", "POST", "/a/r/review", action="submit")[1]["state"] == "in_review"
    assert send("bob", "POST", "/a/r@1/review", action="comment", comment="Fine.")[0] == 200
    assert send("bob", "POST", "/a/r@1/review", action="approve")[1]["state"] == "approved"
    assert send("bob", "GET", "/a/r")[1]["id"] == added["id"]
    page = send("bob", "GET", "/a/r/history?limit=2")[1]
    more = send("bob", "GET", f"/a/r@1/history?after={page['next']}")[1]
    events = page["data"] + more["data"]
    assert [(one["rubric"], one["from_state"], one["to_state"], one["by"], one["comment"]) for one in events] == [
        ("a/r@1", "draft", "in_review", "ann", None),
        ("a/r@1", "in_review", "in_review", "bob", "Fine."),
        ("a/r@1", "in_review", "approved", "bob", None),
    ]
    assert send("bob", "POST", "/unknown/review", action="submit")[0] == 404
    assert send("bob", "GET", "/unknown/history")[0] == 404
    assert [row["id"] for row in send("bob", "GET", "?state=approved")[1]["data"]] == [added["id"]]
    assert send("bob", "GET", "?state=draft")[1]["data"] == []


def test_rubrics_review_names_the_key_where_none_is_required(filled: TestClient, db: Database) -> None:
    with db.write() as session:
        secret = keys.create(session, "ann")[1]
    for header in ({}, {"Authorization": f"Bearer {secret}"}, {"Authorization": "Bearer unknown"}):
        body = {"action": "comment", "comment": f"By {len(header)}."}
        assert filled.post("/v1/rubrics/r/review", json=body, headers=header).status_code == 200
    events = filled.get("/v1/rubrics/r/history").json()["data"]
    assert [event["by"] for event in events] == ["anonymous", "ann", "anonymous"]


def test_four_eyes_know_each_person_by_a_key(serve: Serve, db: Database) -> None:
    http = serve(require_approval="four_eyes", require_key=False)
    for path in ("", "/r@1/review"):
        assert http.post(f"/v1/rubrics{path}", json={"name": "r", "rubric": RUBRIC}).status_code == 401
    send = sender(http, db)
    assert send("ann", "POST", "", name="r", rubric=RUBRIC)[1]["added_by"] == "ann"
    assert send("ann", "POST", "/r/review", action="submit")[0] == 200
    status, refused = send("ann", "POST", "/r/review", action="approve")
    assert (status, refused["error"]["path"]) == (409, "by")
    assert send("ann", "POST", "/r/review", action="approve", by="bob")[0] == 422
    assert send("bob", "POST", "/r/review", action="approve")[1]["state"] == "approved"


def test_rubrics_add_keeps_the_second_of_two_edits(filled: TestClient) -> None:
    def edit(text: str, **fields: Any) -> Any:
        content = {"criteria": [{"key": "a", "text": text}]}
        return filled.post(
            "/v1/rubrics", json={"name": "r", "rubric": content, "prompt_id": 1, "parent": "r@1", **fields}
        )

    assert edit("First.").json()["parent_id"] == 1
    second = edit("Second.")
    expected = (409, "conflict", "parent")
    assert (second.status_code, second.json()["error"]["code"], second.json()["error"]["path"]) == expected
    kept = filled.get("/v1/rubrics/r@3").json()
    assert (kept["state"], kept["rubric"]["criteria"][0]["text"]) == ("draft", "Second.")
    assert filled.get("/v1/rubrics/r").json()["version"] == 2
    assert edit("Second.", force=True).json()["state"] == "approved"
    assert edit("Third.", parent="r@9").status_code == 404


def test_rubrics_add_sets_where_a_rubric_comes_from_itself(http: TestClient) -> None:
    for field, value in {"origin": "imported", "provenance": {"method": "one-shot"}, "state": "approved"}.items():
        refused = http.post("/v1/rubrics", json={"name": "r", "rubric": RUBRIC, field: value})
        assert (refused.status_code, refused.json()["error"]["path"]) == (422, f"body.{field}")
    assert http.post("/v1/rubrics", json={"name": "r", "rubric": RUBRIC}).json()["origin"] == "api"


def test_rubrics_add_rejects_unknown_checks(http: TestClient) -> None:
    for check in ({"name": "horoscope"}, {"name": "contains", "args": {"n": 1}}):
        body = {"name": "r", "rubric": {"criteria": [{"key": "a", "text": "t", "check": check}]}}
        answer = http.post("/v1/rubrics", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["path"].startswith("criteria.0.check.")) == (422, True) and error["hint"]


def test_rubrics_lint_returns_findings(http: TestClient) -> None:
    criteria = [
        {"key": "a", "text": "Fails to mention the dose.", "weight": 5},
        {"key": "b", "text": "Is short.", "check": {"name": "words", "args": {"max": 9}}},
        {"key": "c", "text": "The final answer is 391."},
    ]
    prompt = {"messages": [{"role": "user", "content": "17 times 23 is 391. What is it?"}]}
    body = {"rubric": {"criteria": criteria}, "prompt": prompt}
    found = http.post("/v1/rubrics/lint", json=body).json()["findings"]
    expected = {("sign", "a", "error"), ("empty-passes", "b", "warning"), ("leaked-answer", "c", "error")}
    assert {(one["rule"], one["criterion"], one["severity"]) for one in found} >= expected
    only = http.post("/v1/rubrics/lint", json=body | {"rules": ["sign"]}).json()["findings"]
    assert [one["rule"] for one in only] == ["sign"]
    unknown = http.post("/v1/rubrics/lint", json=body | {"ignore": ["sing"]})
    assert (unknown.status_code, unknown.json()["error"]["path"]) == (422, "rule")
    assert http.get("/v1/rubrics").json()["data"] == []


def test_rubrics_tests_are_listed_and_needed_for_approval(filled: TestClient) -> None:
    example = {"key": "e", "text": "c", "verdicts": {"a": 1}}
    content = {"criteria": [{"key": "a", "text": "Says c."}], "examples": [example]}
    row = filled.post("/v1/rubrics", json={"name": "t", "rubric": content, "draft": True}).json()
    filled.post("/v1/rubrics/t@1/review", json={"action": "submit"})
    refused = filled.post("/v1/rubrics/t@1/review", json={"action": "approve"})
    assert (refused.status_code, refused.json()["error"]["path"]) == (409, "tests")
    found = VerdictTest(criterion="a", expected=NumberRange(min=1, max=1), found=1.0, passed=True)
    test = RubricTest(
        judge="j",
        judge_digest=filled.get("/v1/judges/j").json()["digest"],
        rubric_digest=row["digest"],
        examples=(ExampleTest(example="e", verdicts=(found,)),),
    )
    unknown = filled.post("/v1/rubrics/t@1/tests", json=test.model_dump(mode="json") | {"judge_digest": "0" * 64})
    assert (unknown.status_code, unknown.json()["error"]["path"]) == (422, "judge_digest")
    untrue = found.model_copy(update={"found": 0.0})
    for verdicts in ((), (untrue,), (found.model_copy(update={"criterion": "b"}),), None):
        examples = () if verdicts is None else (ExampleTest(example="e", verdicts=verdicts),)
        other = test.model_copy(update={"examples": examples})
        assert filled.post("/v1/rubrics/t@1/tests", json=other.model_dump(mode="json")).status_code == 422
    added = filled.post("/v1/rubrics/t@1/tests", json=test.model_dump(mode="json"))
    assert (added.status_code, added.json()["rubric_id"]) == (201, row["id"])
    assert filled.post("/v1/rubrics/t@1/tests", json=test.model_dump(mode="json")).json() == added.json(), "once"
    (listed,) = filled.get("/v1/rubrics/t@1/tests").json()["data"]
    expected = ("t@1", "anonymous", "passed", "j")
    assert (listed["rubric"], listed["by"], listed["outcome"], listed["test"]["judge"]) == expected
    assert filled.post("/v1/rubrics/t@1/review", json={"action": "approve"}).json()["state"] == "approved"
