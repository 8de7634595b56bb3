"""``/v1/judges``."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from rubricsvc.services.local import Validators
from rubricsvc.store.session import Database
from tests.rows import invalidate
from tests.unit.rubricsvc.api.conftest import JUDGE, Serve
from workers.judges import validate


def test_judges_add_other_endpoint_is_409(filled: TestClient) -> None:
    """A judge may be sent a key: whoever could move it over HTTP could have the key sent to himself."""
    moved = {**JUDGE, "endpoint": {"base_url": "http://127.0.0.1:9/v1"}}
    assert filled.post("/v1/judges", json={"judge": moved}).status_code == 409
    assert filled.post("/v1/judges", json={"judge": JUDGE}).status_code == 201


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
    assert (bad["name"], bad["judge"], "judges add j" in bad["error"]) == ("j", None, True)
    assert (good["name"], good["judge"]["name"], good["error"]) == ("k", "k", None)
    assert filled.get("/v1/judges/j").json() == bad
    assert "secret" not in answer.text
    assert filled.get(f"/v1/jobs/{job}?summary=true").json()["summary"]["rewards"] == 0


@pytest.mark.parametrize(
    ("change", "path"), [({"engine": "psychic"}, "judge.engine"), ({"template": "../secret"}, "judge.template")]
)
def test_judges_add_rejects_unknown_engine_and_template(serve: Serve, change: dict[str, str], path: str) -> None:
    http = serve(validators=Validators(judge=validate))
    answer = http.post("/v1/judges", json={"judge": {**JUDGE, **change}})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, path)
    assert http.post("/v1/judges", json={"judge": JUDGE}).status_code == 201


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
