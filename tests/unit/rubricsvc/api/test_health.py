"""Liveness, readiness, metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from rubricsvc.store.session import Database
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
    assert answer.status_code == 503
    assert "rubricsvc db upgrade" in answer.json()["error"]["hint"]
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize("kind", ["redis", "amqp"])
def test_readyz_unreachable_broker_is_503(serve: Serve, kind: str) -> None:
    answer = serve(broker_url=f"{kind}://127.0.0.1:{free_port()}/0").get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["error"]["message"].startswith("broker:")
    assert "127.0.0.1" not in answer.text


def test_readyz_does_not_reveal_addresses(http: TestClient, db: Database) -> None:
    path = Path(str(db.engine.url.database))
    db.close()
    path.unlink()
    path.mkdir()  # which is no database
    answer = http.get("/readyz")
    assert answer.status_code == 503 and answer.json()["error"]["message"].startswith("database:")
    assert answer.json()["error"]["hint"] and path.name not in answer.text


def test_metrics_report_requests_and_queue(filled: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert 'rubricsvc_verdicts{outcome="scored"} 0.0' in lines
    work_off(db, fail=1)
    assert 'rubricsvc_verdicts{outcome="scored"} 0.0' in filled.get("/metrics").text, "they are counted once a minute"
    monkeypatch.setattr("rubricsvc.telemetry.VERDICTS_SECONDS", 0.0)
    lines = filled.get("/metrics").text.splitlines()
    assert 'rubricsvc_queue_items{judge="j",state="pending"} 0.0' in lines
    assert 'rubricsvc_verdicts{outcome="scored"} 2.0' in lines
    assert 'rubricsvc_verdicts{outcome="failed"} 1.0' in lines
    assert "rubricsvc_database_up 1.0" in lines
