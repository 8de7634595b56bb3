"""Liveness, readiness, metrics, errors, who may call, and what a body must be."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import DataError, IntegrityError, OperationalError

from rubricsvc.api.auth import is_loopback, needs_key
from rubricsvc.api.body import INLINE_BYTES
from rubricsvc.api.errors import from_exception
from rubricsvc.core import strict_json
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.schemas.base import MAX_BATCH
from rubricsvc.settings import Settings
from rubricsvc.store import keys
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import KeyRow
from tests.databases import downgrade
from tests.rows import add_worker
from tests.services import free_port
from tests.unit.rubricsvc.api.conftest import Serve
from tests.unit.rubricsvc.api.test_jobs import submit, work_off


def test_health_endpoints_report_ok(http: TestClient) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok", "workers": 0}


def test_service_reports_running_workers_and_unattended_items(filled: TestClient, db: Database) -> None:
    submit(filled)
    lines = filled.get("/metrics").text.splitlines()
    assert {"rubricsvc_workers 0.0", "rubricsvc_unattended_items 2.0"} <= set(lines)
    assert filled.get("/v1/jobs/1").json()["workers"] == 0
    add_worker(db, "one")
    lines = filled.get("/metrics").text.splitlines()
    assert {"rubricsvc_workers 1.0", "rubricsvc_unattended_items 0.0"} <= set(lines)
    assert filled.get("/v1/jobs/1").json()["workers"] == filled.get("/readyz").json()["workers"] == 1
    work_off(db, fail=0)
    assert filled.get("/v1/jobs/1").json()["workers"] is None, "the job is finished"


def test_readyz_old_schema_is_503(http: TestClient, db: Database) -> None:
    downgrade(db, "base")
    answer = http.get("/readyz")
    assert answer.status_code == 503 and "rubricsvc db upgrade" in answer.json()["error"]["hint"]
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize("kind", ["redis", "amqp"])
def test_readyz_unreachable_broker_is_503(serve: Serve, kind: str) -> None:
    answer = serve(broker_url=f"{kind}://127.0.0.1:{free_port()}/0").get("/readyz")
    assert answer.status_code == 503 and answer.json()["error"]["message"].startswith("broker:")
    assert "127.0.0.1" not in answer.text


def test_readyz_does_not_reveal_addresses(http: TestClient, db: Database) -> None:
    path = Path(str(db.engine.url.database))
    db.close()
    path.unlink()
    path.mkdir()  # which is no database
    answer = http.get("/readyz")
    assert answer.status_code == 503 and answer.json()["error"]["message"].startswith("database:")
    assert answer.json()["error"]["hint"] and path.name not in answer.text


def test_metrics_report_requests_and_queue(filled: TestClient, db: Database) -> None:
    submit(filled)
    filled.get("/v1/jobs/1")
    filled.get("/v1/jobs/2")
    filled.get("/no/such/path")
    lines = filled.get("/metrics").text.splitlines()
    assert 'rubricsvc_http_requests_total{method="GET",route="/v1/jobs/{job_id}",status="200"} 1.0' in lines
    assert 'rubricsvc_http_requests_total{method="GET",route="/v1/jobs/{job_id}",status="404"} 1.0' in lines
    assert 'rubricsvc_http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in lines
    assert 'rubricsvc_queue_items{judge="j",state="pending"} 2.0' in lines
    assert "rubricsvc_outbox_pending 1.0" in lines
    work_off(db, fail=1)
    lines = filled.get("/metrics").text.splitlines()
    assert 'rubricsvc_queue_items{judge="j",state="pending"} 0.0' in lines
    assert "rubricsvc_database_up 1.0" in lines


def test_request_context_accepts_or_creates_id(http: TestClient) -> None:
    assert http.get("/healthz", headers={"X-Request-ID": "mine-1"}).headers["X-Request-ID"] == "mine-1"
    made = http.get("/healthz", headers={"X-Request-ID": "bad id\tor attack"}).headers["X-Request-ID"]
    assert len(made) == 32
    assert http.get("/v1/prompts/1").headers["X-Request-ID"]


def test_body_limit_is_413(serve: Serve) -> None:
    http = serve(max_body_mib=1000 / 2**20)
    declared = http.post("/v1/prompts", json={"x": "y" * 1000})
    streamed = http.post(
        "/v1/prompts", content=(b"x" * 300 for _ in range(5)), headers={"Content-Type": "application/json"}
    )
    for answer in (declared, streamed):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_app_answers_500_or_503_to_an_exception(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    away = OperationalError("SELECT secret", {}, Exception("server closed the connection"))
    for error, expected in ((RuntimeError("secret detail"), (500, "error")), (away, (503, "unavailable"))):
        monkeypatch.setattr("rubricsvc.services.completions.page_of", Mock(side_effect=error))
        answer = http.get("/v1/prompts")
        assert (answer.status_code, answer.json()["error"]["code"]) == expected
        assert "secret" not in answer.text and answer.headers["X-Request-ID"]
    assert int(answer.headers["Retry-After"]) >= 1


def test_errors_of_routing_have_error_body(http: TestClient) -> None:
    unknown, wrong_method = http.get("/v1/nothing"), http.put("/v1/jobs")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
    assert (wrong_method.status_code, wrong_method.json()["error"]["code"]) == (405, "method_not_allowed")
    assert all(set(one.json()["error"]) == {"code", "message", "hint", "path"} for one in (unknown, wrong_method))


def test_from_exception_maps_to_error_classes() -> None:
    own = ConflictError("x")
    assert from_exception(own) is own
    assert isinstance(from_exception(DataError("INSERT", {}, Exception("too long"))), InvalidError)
    assert isinstance(from_exception(OverflowError()), InvalidError)
    assert from_exception(IntegrityError("INSERT", {}, Exception("a prompt was deleted"))).status == 503


@pytest.mark.parametrize(
    "path", ["jobs/{}", "completions/{}", "jobs/{}/items", "prompts?after={}", "verdicts?job_id={}"]
)
def test_path_id_requires_plain_digits(filled: TestClient, path: str) -> None:
    for number in ["1_0", "１", "+1", "1.0", " 1", "0x1"]:
        answer = filled.get(f"/v1/{path.format(quote(number))}")
        assert answer.status_code == (422 if "?" in path else 404)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/nothing", None),
        ("PUT", "/v1/jobs", None),
        ("GET", "/v1/jobs/x", None),
        ("GET", "/v1/jobs?limit=0", None),
        ("GET", "/v1/jobs?polcy=a", None),
        ("GET", "/v1/jobs?status=bad", None),
        ("GET", "/v1/prompts/none", None),
        ("POST", "/v1/jobs", {}),
        ("POST", "/v1/jobs", {"judge": "j", "items": []}),
        ("POST", "/v1/jobs", {"judge": "j", "items": [{"completion_id": "1", "rubric": "r"}]}),
        ("POST", "/v1/rubrics", {"name": "r", "rubric": {"criteria": []}}),
        ("POST", "/v1/rubrics", {"name": "r", "rubric": {"criteria": [{"key": "a", "text": "t"}], "formula": "x"}}),
        ("POST", "/v1/rubrics", {"name": "a@b", "rubric": {"criteria": [{"key": "a", "text": "t"}]}}),
        ("POST", "/v1/completions", {"completions": [{"prompt_id": 99, "completion": {"text": "x"}}]}),
        ("POST", "/v1/completions", {"completions": [{"prompt_id": 1, "completion": {"policy": "x" * 201}}]}),
        ("POST", "/v1/judges", {"judge": {"name": "1", "model": "m"}}),
        ("POST", "/v1/judges", {"judge": {"name": "k", "model": "m", "sampling": {"top_p": 2.0}}}),
    ],
)
def test_errors_have_message_and_hint(filled: TestClient, method: str, path: str, body: object) -> None:
    answer = filled.request(method, path, json=body)
    error = answer.json()["error"]
    assert 400 <= answer.status_code < 500
    assert error["message"] and error["hint"], error
    assert "Value error" not in error["message"]


def make_key(db: Database, expires_in: timedelta | None = None) -> tuple[int, dict[str, str]]:
    with db.write() as session:
        row, secret = keys.create(session, "test", expires_in)
        return row.id, {"Authorization": f"Bearer {secret}"}


def test_is_loopback_accepts_local_hosts_only() -> None:
    for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "LOCALHOST"]:
        assert is_loopback(host)
    for host in ["", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example"]:
        assert not is_loopback(host)


def test_needs_key_by_host_and_setting() -> None:
    for host, require, peer, needed in [
        ("127.0.0.1", None, "127.0.0.1", False),
        ("127.0.0.1", None, "10.0.0.9", True),  # started by other means than `serve`, on another address
        ("127.0.0.1", True, "127.0.0.1", True),
        ("0.0.0.0", None, "127.0.0.1", True),
        ("0.0.0.0", None, None, True),
        ("0.0.0.0", False, "10.0.0.9", False),
    ]:
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
    assert first is not None and use().last_used_at == first
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
        ({"Origin": "http://evil.example"}, "forbidden"), ({"Origin": "null"}, "forbidden"),
        ({"Origin": "http://[bad"}, "forbidden"), ({"Origin": "http://localhost:3000"}, "forbidden"),
        ({"Sec-Fetch-Site": "cross-site"}, "forbidden"), ({"Sec-Fetch-Site": "same-site"}, "forbidden"),
        ({}, "not_found"), ({"Origin": "http://localhost"}, "not_found"),
        ({"Sec-Fetch-Site": "same-origin"}, "not_found"),
    ],
)  # fmt: skip
def test_reject_cross_site_refuses_foreign_origins_only(serve: Serve, header: dict[str, str], code: str) -> None:
    answer = serve().post("/v1/jobs/1/cancel", headers=header)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403 if code == "forbidden" else 404, code)


def test_reject_cross_site_allows_any_host_with_key(serve: Serve, db: Database) -> None:
    _, header = make_key(db)
    assert serve(require_key=True).get("/v1/prompts", headers={"Host": "rubrics.example", **header}).status_code == 200


JSON = {"Content-Type": "application/json"}


def rubric(criterion: str) -> str:
    return f'{{"name": "r", "rubric": {{"criteria": [{criterion}]}}}}'


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (rubric('{"key": "a", "text": "t", "weight": false}'), "body.rubric.criteria.0.weight"),
        (rubric('{"key": "a", "text": "t", "weight": "1"}'), "body.rubric.criteria.0.weight"),
        (rubric('{"key": "a", "text": "t", "weight": 1e999}'), "body.rubric.criteria.0.weight"),
        (rubric('{"key": "a", "text": "t", "wieght": 1}'), "body.rubric.criteria.0.wieght"),
        (rubric('{"key": "a", "text": "t\\ud800"}'), "body.rubric.criteria.0.text"),
        (rubric('{"key": "a", "text": "t\\u0000"}'), "body.rubric.criteria.0.text"),
        (
            rubric('{"key": "a", "text": "t", "check": {"name": "n", "args": {"x": [1e999]}}}'),
            "body.rubric.criteria.0.check.args.x.0",
        ),
        (rubric('{"key": "a", "text": "t", "weight": 0}'), "body.rubric"),
        (rubric('{"key": "a", "text": "t"}, {"key": "a", "text": "u"}'), "body.rubric"),
        (rubric(""), "body.rubric.criteria"),
        ('{"name": "r"}', "body.rubric"),
        ("[]", "body"),
        ("null", "body"),
    ],
)
def test_body_with_wrong_field_is_422_with_path(http: TestClient, body: str, path: str) -> None:
    answer = http.post("/v1/rubrics", content=body, headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["path"]) == (422, "invalid", path)


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", '{"name": NaN}', '{"name": Infinity}', "[" * 5000, "\xff"),
        '{"name": "r", "name": "s", "rubric": {"criteria": [{"key": "a", "text": "t"}]}}',
        rubric('{"key": "a", "text": "t", "weight": 1, "weight": 5}'),
        rubric('{"key": "a", "text": "t", "check": {"name": "n", "args": {"x": 1, "x": 2}}}'),
    ],
)
def test_body_that_is_not_json_or_repeats_a_key_is_400(http: TestClient, body: str) -> None:
    answer = http.post("/v1/rubrics", content=body.encode("latin-1"), headers=JSON)
    expected = (400, "malformed") if body else (422, "invalid")
    assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert answer.json()["error"]["path"] == "body"


def test_body_requires_json_content_type(http: TestClient) -> None:
    """A cross-site form can send JSON as text/plain without asking the browser's leave."""
    answer = http.post(
        "/v1/rubrics", content=rubric('{"key": "a", "text": "t"}'), headers={"Content-Type": "text/plain"}
    )
    assert answer.status_code == 400


def test_body_error_shortens_huge_field_names(http: TestClient) -> None:
    answer = http.post("/v1/rubrics", json={"name": "r", "rubric": {}, "x" * 50_000: 1})
    assert answer.status_code == 422 and len(answer.content) < 6000


def test_body_with_too_many_errors_is_422_that_counts_them(http: TestClient) -> None:
    answer = http.post("/v1/rubrics", content=rubric("{}" + ",{}" * 2000), headers=JSON)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["path"]) == (422, "invalid", "body")
    assert "4003" in error["message"]


def test_body_list_fails_at_its_first_invalid_item(http: TestClient) -> None:
    answer = http.post("/v1/labels", content='{"labels": [1, {}, {}]}', headers=JSON)
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "body.labels.0")
    assert "labels.1" not in answer.text


@pytest.mark.parametrize("number", [INLINE_BYTES // 16, INLINE_BYTES])
def test_body_of_any_size_is_validated(filled: TestClient, number: int) -> None:
    """A large body is validated in a thread."""
    assert filled.post("/v1/prompts", json={"prompt": {"messages": [message("x" * number)]}}).status_code == 201
    answer = filled.post("/v1/prompts", json={"prompt": {"messages": [message("x" * number), {}]}})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "body.prompt.messages.1.role")


def message(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def test_body_has_room_for_full_batches() -> None:
    completion = {"text": "t, [", "policy": "p", "step": 1, "sampling": {"temperature": 1.0, "top_p": 1.0, "seed": 1}}
    label = {"criterion": "c", "annotator": "a", "value": 1.0, "note": '"{,'}
    for batch in (
        {"completions": [{"prompt_id": 1, "completion": completion}] * MAX_BATCH},
        {"labels": [{"completion_id": 1, "rubric": "r", "label": label}] * MAX_BATCH},
    ):
        assert strict_json.parse(json.dumps(batch), max_values=strict_json.MAX_VALUES) == batch
    with pytest.raises(strict_json.JsonError) as caught:
        strict_json.parse(json.dumps([0] * (strict_json.MAX_VALUES + 1)), max_values=strict_json.MAX_VALUES)
    assert caught.value.code == "too_many_values"


def test_body_rejects_unauthorized_callers_before_it_is_validated(serve: Serve) -> None:
    answer = serve(require_key=True).post("/v1/labels", content="{" * INLINE_BYTES * 2, headers=JSON)
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["rescore", "retry", "cancel"])
def test_body_is_refused_where_the_route_would_ignore_it(filled: TestClient, path: str) -> None:
    answer = filled.post(f"/v1/jobs/1/{path}", content='{"budget": 1}', headers=JSON)
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "body")
    assert "takes no body" in answer.json()["error"]["message"]
    assert filled.post(f"/v1/jobs/1/{path}").status_code == 404
