"""Waiting over Redis: without a worker, with one that is killed, with one of another database."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.services.workers import Workers
from rubricsvc.settings import Settings
from rubricsvc.store import leases
from rubricsvc.store.session import Database, attach
from tests.rows import age_worker, progress_of, submit_job
from tests.scripted_server import ScriptedReply, ScriptedServer, labels, scripted_server
from tests.services import wait_for
from tests.worker_process import WorkerProcess, redis_url

TIMEOUT = 60.0
ITEMS = 30
NO_WORKER = "No worker is running"


def running(db: Database) -> list[str]:
    return [worker.name for worker in Workers(db).page() if worker.status == "running"]


def judge(server: ScriptedServer) -> Judge:
    endpoint = Endpoint(base_url=server.url, max_retries=0, concurrency=2)
    return Judge(name="scripted", model="scripted", endpoint=endpoint)


@pytest.fixture
def slow_judge() -> Iterator[ScriptedServer]:
    answer = labels(Yes=0.8, No=0.1)
    with scripted_server(ScriptedReply(answer.text, answer.logprobs, delay_s=0.2)) as server:
        yield server


def test_wait_tells_of_missing_killed_and_new_workers(
    each_db: Database, slow_judge: ScriptedServer, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "database_url": each_db.url,
        "broker_url": redis_url(),
        "lease_seconds": 3,
        "reconcile_seconds": 0.5,
    }
    attach(each_db, Settings.model_validate(settings))
    job = submit_job(each_db, ITEMS, judge=judge(slow_judge))
    log, worker_log = tmp_path / "wait.log", tmp_path / "worker.log"
    waiting = WorkerProcess(log, str(job), command="jobs wait", **settings)
    started = [waiting]
    try:
        wait_for(lambda: log.read_text().count(NO_WORKER) == 1, log)
        started.append(WorkerProcess(worker_log, **settings))
        wait_for(lambda: "A worker is running." in log.read_text(), log)
        wait_for(lambda: slow_judge.count > 2, log)
        (name,) = running(each_db)
        started[-1].kill()
        assert running(each_db) == [name], "the row of a killed worker stays"
        age_worker(each_db, name, leases.REPORT_SECONDS * leases.MISSED_REPORTS)
        wait_for(lambda: log.read_text().count(NO_WORKER) == 2, log)
        started.append(WorkerProcess(worker_log, **settings))
        assert waiting.process.wait(TIMEOUT) == 0, log.read_text()
        assert log.read_text().count("A worker is running.") == 2
        assert started[-1].stop() == 0
        assert running(each_db) == [], "a worker that stops removes its row"
    finally:
        for process in started:
            process.kill()
    assert progress_of(each_db, job).done == ITEMS
