"""Running workers, on both databases."""

from __future__ import annotations

import time

import pytest

from rubricsvc.store import workers
from rubricsvc.store.session import Database
from tests.rows import add_worker

MISSED = workers.REPORT_SECONDS * workers.MISSED_REPORTS


def test_workers_running_counts_those_seen_lately(each_db: Database) -> None:
    add_worker(each_db, "here")
    add_worker(each_db, "slow", age=MISSED - 5)
    add_worker(each_db, "killed", age=MISSED + 5)
    with each_db.read() as session:
        assert workers.running(session) == 2
        listed = {worker.name: worker for worker in workers.page(session)}
    assert {name: worker.running for name, worker in listed.items()} == {"here": True, "slow": True, "killed": False}
    assert listed["killed"].started == pytest.approx(60, abs=30)
    add_worker(each_db, "killed")
    with each_db.write() as session:
        assert workers.running(session) == 3, "it was suspended and goes on"
        workers.remove(session, "killed")
        assert workers.running(session) == 2


def test_workers_remove_lost_deletes_old_rows_only(each_db: Database) -> None:
    add_worker(each_db, "lost", age=MISSED + 5)
    add_worker(each_db, "old", age=workers.KEPT_SECONDS + 5)
    with each_db.write() as session:
        workers.remove_lost(session)
        assert [worker.name for worker in workers.page(session)] == ["lost"]


def test_workers_times_are_by_the_clock_of_the_database(each_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if each_db.engine.dialect.name == "sqlite":
        pytest.skip("its clock is the machine's")
    add_worker(each_db)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    with each_db.read() as session:
        assert workers.running(session) == 1
