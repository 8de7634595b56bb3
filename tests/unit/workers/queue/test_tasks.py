"""What a worker's process keeps: who is worked for, and the database."""

import contextlib
import os
import subprocess
import sys
import time
from functools import partial

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from rubricsvc.broker import make_celery
from rubricsvc.core.judge import Judge
from rubricsvc.errors import NotFoundError
from rubricsvc.settings import Settings
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import Database, upgrade
from rubricsvc.store.tables import OutboxRow
from tests.databases import downgrade
from tests.rows import RUBRIC, add_worker, item_result, submit_job
from tests.services import wait_for
from workers.queue import app as tasks
from workers.queue.app import NAME, reporting, worker_for
from workers.queue.drain import Drainer


def test_score_drains_a_judge_once_at_a_time_and_is_announced_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = tasks.make_app(Settings(database_url=db.url, broker_url="memory://"), db).tasks[leases.SCORE]
    drained: list[int] = []

    def run(_drainer: Drainer, judge_id: int) -> bool:
        drained.append(judge_id)
        if len(drained) == 1:
            for other in (2, 1, 1):  # messages that come meanwhile
                score(other, 9)
        return True

    monkeypatch.setattr(Drainer, "run", run)
    score(1, 9)
    assert drained == [1, 2]
    with db.read() as session:
        assert list(session.scalars(select(OutboxRow.judge_id))) == [1]
    score(1, 9)
    assert drained == [1, 2, 1]


def test_database_is_opened_once_and_closed_at_exit(db: Database) -> None:
    settings = Settings(database_url=db.url, broker_url="memory://")
    first = tasks.database(settings)
    assert tasks.database(settings) is first and first.on_commit is not None
    with first.read() as session:
        session.connection()
    assert first.engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    tasks.close()
    assert first.engine.pool.checkedin() == 0  # type: ignore[attr-defined]
    assert tasks.database(settings) is not first
    tasks.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "REPORT_SECONDS", 0.02)
    tasks.stopping.clear()  # an embedded worker of an earlier test leaves it set


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
        upgrade(db)
        wait_for(lambda: seen(db))
    assert [entry["log_level"] for entry in logs] == ["warning", "info"]
    assert seen(db) == []


def test_reconcile_frees_leases_of_lost_workers_alone(each_db: Database) -> None:
    settings = Settings(database_url=each_db.url, broker_url="memory://")
    submit_job(each_db, 10, judge=Judge(name="j", model="m"))
    add_worker(each_db, "here:1:a", age=tasks.LOST_SECONDS + 1)
    add_worker(each_db, "here:1:ab", age=tasks.LOST_SECONDS - 5)
    add_worker(each_db, NAME, age=0)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    stopped = "here:2:c/2:1"  # it has no row: it was asked to stop, and killed
    with each_db.write() as session:
        claims = partial(leases.claim, session, 1, limit=2, seconds=120)
        lost, *_ = [
            claims(worker=name)
            for name in ("here:1:a/1:1", "here:1:ab/1:1", stopped, f"{NAME}/{child.pid}:1", f"{NAME}/{os.getpid()}:1")
        ]
    app = make_celery(settings)
    for free_lost, freed in ((False, 2), (True, 4)):
        assert tasks.reconcile(each_db, app, settings, free_lost=free_lost) == freed
    with each_db.write() as session:  # the worker was only paused
        leases.claim(session, 1, limit=1, worker="other", seconds=120)
        assert leases.held(session, lost) == set()
        assert leases.record(session, [item_result(one, RUBRIC, []) for one in lost]).items == []


def test_worker_for_is_one_of_an_open_job_on_a_broker_in_this_process(db: Database) -> None:
    def needed(job_id: int) -> bool:
        return not isinstance(worker_for(db, job_id, print), contextlib.nullcontext)

    job = submit_job(db, 1, judge=Judge(name="test", model="m"))
    assert needed(job)
    db.on_commit = lambda: None
    assert not needed(job), "another process may score it"
    db.on_commit = None
    with db.write() as session:
        jobs.cancel(session, job)
    assert not needed(job)
    with pytest.raises(NotFoundError):
        worker_for(db, 7, print)
