"""The reports of a worker, with a database that fails for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from rubricsvc.store import leases, migrate
from rubricsvc.store.session import Database
from tests.databases import downgrade
from workers.queue.app import NAME, reporting


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "REPORT_SECONDS", 0.02)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def seen(db: Database) -> list[tuple[str, float]]:
    with db.read() as session:
        return [(row.name, row.seen_at - row.started_at) for row, _ in leases.list_workers(session)]


def test_reporter_renews_and_removes_its_row(db: Database) -> None:
    with reporting(db):
        ((name, first),) = seen(db)
        wait_for(lambda: seen(db)[0][1] > first)
        assert name == NAME
    assert seen(db) == []


def test_reporter_logs_a_failing_database_once_and_goes_on(db: Database) -> None:
    downgrade(db, "base")
    with capture_logs() as logs, reporting(db):
        time.sleep(0.2)
        assert [entry["log_level"] for entry in logs] == ["warning"]
        migrate.upgrade(db)
        wait_for(lambda: seen(db))
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
    assert seen(db) == []
