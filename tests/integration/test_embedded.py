"""A Celery worker inside the process: from submission to the last verdict, with messages alone to wake it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import select

from rubricsvc.core.judge import Judge
from rubricsvc.settings import Settings
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from rubricsvc.store.tables import ItemRow
from tests.instant_engine import InstantEngine
from tests.rows import progress_of, status_of, submit_job
from tests.services import wait_for
from workers.engines import ENGINES
from workers.queue.app import embedded_worker

JUDGE = Judge(name="test", engine="test", model="none")


@pytest.fixture(autouse=True)
def _instant() -> Iterator[None]:
    ENGINES["test"] = lambda _judge: InstantEngine()
    yield
    del ENGINES["test"]


def settings(db: Database) -> Settings:
    return Settings(database_url=db.url, reconcile_seconds=300)  # so long that only the message can have woken it


def test_embedded_worker_scores_waiting_and_later_jobs(each_db: Database) -> None:
    early = submit_job(each_db, 10, judge=JUDGE)
    with embedded_worker(settings(each_db), each_db):
        wait_for(lambda: status_of(each_db, early) == "completed")
        time.sleep(0.5)  # the drain is over: only a new message can begin another
        late = submit_job(each_db, 20, judge=JUDGE)
        wait_for(lambda: status_of(each_db, late) == "completed")
    assert each_db.on_commit is None


def test_embedded_worker_takes_over_at_once_from_killed_processes_of_its_host(each_db: Database) -> None:
    host, killed = socket.gethostname(), subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    job = submit_job(each_db, 20, judge=JUDGE)
    others = [
        f"{host}:{os.getpid()}:0a1b2c/{os.getpid()}:3d4e5f",
        f"not-{host}:{killed.pid}:0a1b2c/{killed.pid}:3d4e5f",
    ]
    for worker in (f"{host}:{killed.pid}:0a1b2c/{killed.pid}:3d4e5f", *others):
        with each_db.write() as session:
            assert leases.claim(session, 1, limit=5, worker=worker, seconds=300)
    with embedded_worker(settings(each_db), each_db):
        wait_for(lambda: progress_of(each_db, job).done == 10)
    with each_db.read() as session:
        rows = session.execute(select(ItemRow.state, ItemRow.fence, ItemRow.worker).order_by(ItemRow.id)).all()
    assert progress_of(each_db, job).done == 10
    assert [row.fence for row in rows] == [2] * 5 + [1] * 15
    assert [(row.state, row.worker) for row in rows[5:15]] == [
        ("leased", worker) for worker in others for _ in range(5)
    ]
