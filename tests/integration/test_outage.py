"""A real PostgreSQL or Redis goes away while a job is scored."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import signals

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.services.workers import Workers
from rubricsvc.settings import Settings
from rubricsvc.store import leases
from rubricsvc.store.session import Database, upgrade
from tests.rows import progress_of, submit_job
from tests.scripted_server import ScriptedReply, ScriptedServer, labels, scripted_server
from tests.services import POSTGRES, REDIS, Postgres, free_port, postgres, redis, wait_for
from tests.worker_process import WorkerProcess
from workers.queue import app
from workers.queue.app import make_app, with_worker_threads

ITEMS = 40
TIMEOUT = 90.0


@pytest.fixture
def server() -> Iterator[Postgres]:
    if POSTGRES not in os.environ:
        pytest.skip(f"needs PostgreSQL: run the tests with `make test`, or set {POSTGRES}")
    with postgres() as running:
        yield running


@pytest.fixture
def postgres_db(server: Postgres) -> Iterator[Database]:
    db = Database(server.url)
    upgrade(db)
    yield db
    db.close()


def judge_of(server: ScriptedServer, name: str = "scripted") -> Judge:
    endpoint = Endpoint(base_url=server.url, max_retries=0, concurrency=4)
    return Judge(name=name, model=name, endpoint=endpoint)


def submit(db: Database, judge: ScriptedServer) -> int:
    return submit_job(db, ITEMS, judge=judge_of(judge))


def started(log: Path, db: Database, *arguments: object) -> subprocess.Popen[bytes]:
    """A command; `jobs wait` scores in its own process."""
    environment = {**os.environ, "RUBRICSVC_DATABASE_URL": db.url, "RUBRICSVC_BROKER_URL": "memory://"}
    with log.open("ab") as out:
        command = [sys.executable, "-m", "rubricsvc", *map(str, arguments)]
        # A shell that started the tests in the background had SIGINT ignored, and children inherit that.
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out, preexec_fn=_heed_ctrl_c)  # noqa: PLW1509


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_wait_survives_a_database_restart(server: Postgres, postgres_db: Database, tmp_path: Path) -> None:
    log, answer = tmp_path / "log", labels(Yes=0.8, No=0.1)
    with scripted_server(ScriptedReply(answer.text, answer.logprobs, delay_s=0.2)) as judge:
        job = submit(postgres_db, judge)
        command = started(log, postgres_db, "jobs", "wait", job)
        wait_for(lambda: progress_of(postgres_db, job).done > 0, log)
        server.stop()
        wait_for(lambda: "retrying" in log.read_text(), log)
        server.start()
        assert command.wait(TIMEOUT) == 0, log.read_text()
    assert "again" in log.read_text()
    counts = progress_of(postgres_db, job)
    assert (counts.done, counts.verdicts, counts.failed_verdicts) == (ITEMS, 3 * ITEMS, 0)


def test_wait_interrupted_without_database_releases_its_leases(
    server: Postgres, postgres_db: Database, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with scripted_server(ScriptedReply(delay_s=300.0)) as judge:
        job = submit(postgres_db, judge)
        command = started(log, postgres_db, "jobs", "wait", job)
        wait_for(lambda: progress_of(postgres_db, job).leased > 0, log)
        server.stop()
        wait_for(lambda: "retrying" in log.read_text(), log)
        command.send_signal(signal.SIGINT)
        wait_for(lambda: f"rubricsvc jobs wait {job}" in log.read_text(), log)
        server.start()  # within the grace that a stopping worker has to give its leases back
        assert command.wait(TIMEOUT) == 130, log.read_text()
    counts = progress_of(postgres_db, job)
    assert (counts.pending, counts.leased) == (ITEMS, 0)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_worker_survives_the_loss_of_redis(db: Database, tmp_path: Path, pool: str) -> None:
    """Its work is done during the outage, and acknowledged over a connection that is closed."""
    if REDIS not in os.environ:
        pytest.skip(f"needs Redis: run the tests with `make test`, or set {REDIS}")
    log, port = tmp_path / "log", free_port()
    with scripted_server(ScriptedReply(delay_s=0.3)) as judge:
        with redis(port) as url:
            job = submit(db, judge)
            settings = {"database_url": db.url, "broker_url": url, "reconcile_seconds": 1}
            worker = WorkerProcess(log, f"--pool={pool}", **settings)
            wait_for(lambda: progress_of(db, job).leased > 0, log)

        def scored(job: int) -> bool:
            return worker.process.poll() is not None or progress_of(db, job).finished == ITEMS

        try:
            wait_for(lambda: scored(job), log)
            with redis(port):
                other = submit_job(db, ITEMS, judge=judge_of(judge, "other"))
                wait_for(lambda: scored(other), log)
                assert worker.process.poll() is None, log.read_text()
                assert worker.stop() == 0
            assert "Unrecoverable" not in log.read_text()
        finally:
            worker.kill()


def test_worker_that_starts_without_the_database_reports_later(
    server: Postgres, postgres_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("worker_ready", "worker_shutdown", "worker_shutting_down", "worker_process_shutdown"):
        monkeypatch.setattr(getattr(signals, name), "receivers", [])
    monkeypatch.setattr(leases, "REPORT_SECONDS", 0.2)
    settings = Settings(database_url=postgres_db.url)
    with_worker_threads(make_app(settings), settings)
    server.stop()
    for _, ready in signals.worker_ready.receivers:
        ready(sender=SimpleNamespace(pool=None))
    server.start()
    try:
        wait_for(lambda: Workers(postgres_db).page())
    finally:
        signals.worker_shutdown.send(None)
        app.close()
