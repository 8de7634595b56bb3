"""Running workers, on both databases."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from rubricsvc.services.workers import Workers
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from tests.rows import add_worker

MISSED = leases.REPORT_SECONDS * leases.MISSED_REPORTS


def test_workers_running_counts_those_seen_lately(each_db: Database) -> None:
    add_worker(each_db, "here")
    add_worker(each_db, "slow", age=MISSED - 5)
    add_worker(each_db, "killed", age=MISSED + 5)
    with each_db.read() as session:
        assert leases.running_workers(session) == 2
    listed = {worker.name: worker for worker in Workers(each_db).page()}
    assert {name: worker.status for name, worker in listed.items()} == {
        "here": "running",
        "slow": "running",
        "killed": "lost",
    }
    assert datetime.now(UTC) - listed["killed"].since == pytest.approx(timedelta(seconds=60), abs=timedelta(seconds=30))
    add_worker(each_db, "killed")
    with each_db.write() as session:
        assert leases.running_workers(session) == 3, "it was suspended and goes on"
        leases.report_worker(session, "killed", host="", pid=0, uptime=None)
        assert leases.running_workers(session) == 2


def test_workers_remove_lost_deletes_old_rows_only(each_db: Database) -> None:
    add_worker(each_db, "lost", age=MISSED + 5)
    add_worker(each_db, "old", age=leases.KEPT_SECONDS + 5)
    with each_db.write() as session:
        leases.reconcile(session, max_leases=3)
        assert [row.name for row, _ in leases.list_workers(session)] == ["lost"]


def test_workers_times_are_by_the_clock_of_the_database(each_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if each_db.engine.dialect.name == "sqlite":
        pytest.skip("its clock is the machine's")
    add_worker(each_db)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    with each_db.read() as session:
        assert leases.running_workers(session) == 1
