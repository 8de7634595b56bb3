"""Who may call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rubricsvc.api.auth import is_loopback, needs_key
from rubricsvc.settings import Settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import KeyRow
from tests.unit.rubricsvc.api.conftest import Serve


def make_key(db: Database, expires_in: timedelta | None = None) -> tuple[int, dict[str, str]]:
    with db.write() as session:
        row, secret = keys.create(session, "test", expires_in)
        return row.id, {"Authorization": f"Bearer {secret}"}


def test_is_loopback_accepts_local_hosts_only() -> None:
    for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "LOCALHOST"]:
        assert is_loopback(host)
    for host in ["", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example"]:
        assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "require", "peer", "needed"),
    [
        ("127.0.0.1", None, "127.0.0.1", False),
        ("127.0.0.1", None, "10.0.0.9", True),  # started by other means than `serve`, on another address
        ("127.0.0.1", True, "127.0.0.1", True),
        ("0.0.0.0", None, "127.0.0.1", True),
        ("0.0.0.0", None, None, True),
        ("0.0.0.0", False, "10.0.0.9", False),
    ],
)
def test_needs_key_by_host_and_setting(host: str, require: bool | None, peer: str | None, needed: bool) -> None:
    assert needs_key(Settings(host=host, require_key=require), peer) is needed


def test_authenticate_rejects_missing_and_wrong_keys(serve: Serve) -> None:
    for http in (serve(require_key=True), serve(host="0.0.0.0"), serve(peer="10.0.0.9")):
        answer = http.get("/v1/prompts")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert http.get("/metrics").status_code == 401
        assert http.get("/healthz").status_code == 200
    for value in ("Bearer wrong", "Basic dXNlcjpwYXNz", "Bearer ", "Bearer \xe9"):
        header = {"Authorization": value.encode("latin-1")}
        assert serve(require_key=True).get("/v1/prompts", headers=header).status_code == 401


def test_authenticate_rejects_revoked_and_expired_keys(serve: Serve, db: Database) -> None:
    http = serve(host="0.0.0.0", url="http://rubrics.example")
    key_id, header = make_key(db)
    assert http.get("/v1/prompts", headers=header).status_code == 200
    assert http.get("/metrics", headers=header).status_code == 200
    with db.write() as session:
        keys.revoke(session, key_id)
    assert "revoked" in http.get("/v1/prompts", headers=header).json()["error"]["message"]
    _, expired = make_key(db, timedelta(seconds=-1))
    assert "expired" in http.get("/v1/prompts", headers=expired).json()["error"]["message"]


def test_authenticate_updates_last_use_once_a_minute(serve: Serve, db: Database) -> None:
    http = serve(require_key=True)
    key_id, header = make_key(db)

    def use() -> KeyRow:
        http.get("/v1/prompts", headers=header)
        with db.read() as session:
            (row,) = page_of(session, KeyRow, key_id - 1, 50)
            return row

    first = use().last_used_at
    assert first is not None
    assert use().last_used_at == first
    with db.write() as session:
        session.get_one(KeyRow, key_id).last_used_at = datetime.now(UTC) - timedelta(seconds=61)
    assert (use().last_used_at or first) >= first


def test_reject_cross_site_refuses_rebound_host(serve: Serve) -> None:
    """A page on evil.example whose name was made to resolve to 127.0.0.1."""
    http = serve()
    for host in ("evil.example", "evil.example:8321", "", "[::"):
        answer = http.get("/v1/prompts", headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    for host in ("localhost:8321", "127.0.0.1", "[::1]:8321"):
        assert http.get("/v1/prompts", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({"Origin": "http://evil.example"}, "forbidden"),
        ({"Origin": "null"}, "forbidden"),
        ({"Origin": "http://[bad"}, "forbidden"),
        ({"Origin": "http://localhost:3000"}, "forbidden"),
        ({"Sec-Fetch-Site": "cross-site"}, "forbidden"),
        ({"Sec-Fetch-Site": "same-site"}, "forbidden"),
        ({}, "not_found"),
        ({"Origin": "http://localhost"}, "not_found"),
        ({"Sec-Fetch-Site": "same-origin"}, "not_found"),
    ],
)
def test_reject_cross_site_refuses_foreign_origins_only(serve: Serve, header: dict[str, str], code: str) -> None:
    answer = serve().post("/v1/jobs/1/cancel", headers=header)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403 if code == "forbidden" else 404, code)


def test_reject_cross_site_allows_any_host_with_key(serve: Serve, db: Database) -> None:
    _, header = make_key(db)
    assert serve(require_key=True).get("/v1/prompts", headers={"Host": "rubrics.example", **header}).status_code == 200
