"""``/v1/judges``."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from rubricsvc.core.audit import Audit, SuiteResult
from rubricsvc.core.repeatability import Deviation, Repeatability
from rubricsvc.services.local import Validators
from rubricsvc.stats.intervals import rate
from rubricsvc.store import judges
from rubricsvc.store.base import utcnow
from rubricsvc.store.session import Database
from tests.made_passport import made_passport
from tests.rows import invalidate
from tests.unit.rubricsvc.api.conftest import JUDGE, Serve
from workers.judges import validate


def test_judges_add_same_name_other_judge_is_409(filled: TestClient) -> None:
    assert filled.post("/v1/judges", json={"judge": JUDGE}).json()["id"] == 1
    other = filled.post("/v1/judges", json={"judge": {**JUDGE, "model": "another"}})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")


def test_judges_add_other_endpoint_is_409(filled: TestClient) -> None:
    """A judge may be sent a key: whoever could move it over HTTP could have the key sent to himself."""
    moved = {**JUDGE, "endpoint": {"base_url": "http://127.0.0.1:9/v1"}}
    assert filled.post("/v1/judges", json={"judge": moved}).status_code == 409
    assert filled.post("/v1/judges", json={"judge": JUDGE}).status_code == 201


def test_judges_add_other_adapter_folder_is_409(filled: TestClient) -> None:
    adapted = {**JUDGE, "name": "a", "engine": "transformers_local", "mode": "readout", "adapter": "/one"}
    adapted["weights_sha256"] = "0" * 64
    assert filled.post("/v1/judges", json={"judge": adapted}).status_code == 201
    assert filled.post("/v1/judges", json={"judge": {**adapted, "adapter": "/other"}}).status_code == 409
    assert filled.get("/v1/judges/a").json()["judge"]["adapter"] == "/one"


def test_judges_add_rejects_api_key_env(filled: TestClient) -> None:
    thief = {**JUDGE, "name": "t", "endpoint": {"base_url": "http://127.0.0.1:9", "api_key_env": "PATH"}}
    answer = filled.post("/v1/judges", json={"judge": thief})
    assert answer.status_code == 422
    assert answer.json()["error"]["path"] == "judge.endpoint.api_key_env"


def test_judges_page_lists_a_judge_that_is_not_valid_any_more(filled: TestClient, db: Database) -> None:
    filled.post("/v1/judges", json={"judge": {**JUDGE, "name": "k"}})
    items = [{"completion_id": 1, "rubric": "r"}]
    job = filled.post("/v1/jobs", json={"judge": "j", "items": items}).json()["id"]
    invalidate(db, "j", base_url="http://user:secret@host/v1")
    answer = filled.get("/v1/judges")
    bad, good = answer.json()["data"]
    assert (bad["name"], bad["judge"], "judges update j" in bad["error"]) == ("j", None, True)
    assert (good["name"], good["judge"]["name"], good["error"]) == ("k", "k", None)
    assert filled.get("/v1/judges/j").json() == bad
    assert "secret" not in answer.text
    assert filled.get(f"/v1/jobs/{job}?summary=true").json()["summary"]["rewards"] == 0


def test_judges_page_and_get(filled: TestClient) -> None:
    assert [row["id"] for row in filled.get("/v1/judges").json()["data"]] == [1]
    assert filled.get("/v1/judges/nobody").status_code == 404


def test_judges_get_has_repeatability(filled: TestClient, db: Database) -> None:
    assert filled.get("/v1/judges/1").json()["repeatability"] is None
    deviation = Deviation(n=9, value=0.03, low=0.02, high=0.04)
    measured = Repeatability(
        fingerprint="f",
        source="job 1",
        measured_at=utcnow(),
        repeats=5,
        completions=9,
        criteria={"binary": deviation},
        reward=deviation,
    )
    with db.write() as session:
        judges.set_repeatability(session, 1, measured)
    assert filled.get("/v1/judges/1").json()["repeatability"] == measured.model_dump(mode="json")


def test_judges_get_passport(filled: TestClient, db: Database) -> None:
    assert filled.get("/v1/judges/1").json()["has_passport"] is False
    assert filled.get("/v1/judges/j/passport").status_code == 404
    passport = made_passport()
    with db.write() as session:
        judges.set_passport(session, 1, passport)
    assert filled.get("/v1/judges/1").json()["has_passport"] is True
    assert filled.get("/v1/judges/j/passport").json() == passport.model_dump(mode="json")
    assert filled.get("/v1/judges/nobody/passport").status_code == 404


@pytest.mark.parametrize(
    ("endpoint", "field"),
    [
        ({"base_url": "http://["}, "base_url"),
        ({"base_url": "foo"}, "base_url"),
        ({"base_url": "file:///etc/passwd"}, "base_url"),
        ({"base_url": "http://"}, "base_url"),
        ({"max_retries": 21}, "max_retries"),
        ({"timeout_s": 3601.0}, "timeout_s"),
        ({"concurrency": 4097}, "concurrency"),
    ],
)
def test_judges_add_rejects_invalid_endpoint(filled: TestClient, endpoint: object, field: str) -> None:
    answer = filled.post("/v1/judges", json={"judge": {**JUDGE, "name": "k", "endpoint": endpoint}})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, f"body.judge.endpoint.{field}")


@pytest.mark.parametrize(
    ("change", "path"), [({"engine": "psychic"}, "judge.engine"), ({"template": "../secret"}, "judge.template")]
)
def test_judges_add_rejects_unknown_engine_and_template(serve: Serve, change: dict[str, str], path: str) -> None:
    http = serve(validators=Validators(judge=validate))
    answer = http.post("/v1/judges", json={"judge": {**JUDGE, **change}})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, path)
    assert http.post("/v1/judges", json={"judge": JUDGE}).status_code == 201


def test_judges_add_panel_requires_whole_members(serve: Serve) -> None:
    http = serve(validators=Validators(judge=validate))
    members = [{"name": name, "model": name} for name in ("a", "b")]
    made = http.post("/v1/judges", json={"judge": {"name": "p", "mode": "panel", "members": members}})
    assert made.status_code == 201
    kept = http.get("/v1/judges/p").json()["judge"]
    assert [member["name"] for member in kept["members"]] == ["a", "b"]
    bad = http.post("/v1/judges", json={"judge": {"name": "q", "mode": "panel", "members": members[:1]}})
    assert bad.status_code == 422


def test_judges_add_cascade_validates_members(serve: Serve) -> None:
    http = serve(validators=Validators(judge=validate))
    cascade = {"name": "c", "mode": "cascade", "band": [0.2, 0.8], "members": [JUDGE, {"name": "k", "model": "m2"}]}
    assert http.post("/v1/judges", json={"judge": cascade}).status_code == 201
    cascade["members"] = [JUDGE, {"name": "k", "model": "m2", "engine": "psychic"}]
    assert http.post("/v1/judges", json={"judge": {**cascade, "name": "d"}}).status_code == 422


def test_judges_add_rejects_members_keys_and_endpoints(serve: Serve) -> None:
    """As of a judge: a member that could be moved, or given a key, over HTTP would bring its key to somebody else."""
    http = serve(validators=Validators(judge=validate))

    def answer(**endpoint: str) -> int:
        members = [JUDGE, {"name": "k", "model": "m2", "endpoint": endpoint}]
        return http.post("/v1/judges", json={"judge": {"name": "p", "mode": "panel", "members": members}}).status_code

    assert answer(base_url="http://127.0.0.1:9", api_key_env="PATH") == 422
    assert answer(base_url="http://127.0.0.1:9") == 201
    assert answer(base_url="http://127.0.0.1:9") == 201
    assert answer(base_url="http://127.0.0.1:10") == 409


def test_judges_audits_page(filled: TestClient, db: Database) -> None:
    assert filled.get("/v1/judges/j/audits").json() == {"data": [], "next": None}
    suite = SuiteResult(name="s", measure="met", rate=rate(1, 10), max_rate=0.2, passed=True)
    with db.write() as session:
        for digest in ("one", "two"):
            judges.add_audit(session, 1, Audit(digest=digest, fingerprint="f", suites=(suite,)))
    page = filled.get("/v1/judges/1/audits", params={"limit": 1}).json()
    assert (page["next"], page["data"][0]["passed"], page["data"][0]["audit"]["digest"]) == (1, True, "one")
    (second,) = filled.get("/v1/judges/j/audits", params={"after": 1}).json()["data"]
    assert second["audit"]["suites"][0]["rate"] == rate(1, 10).model_dump()
    assert filled.get("/v1/judges/nobody/audits").status_code == 404
