"""A small job is divided among all running workers, over Redis."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from rubricsvc.broker import make_celery
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import Database, attach
from tests.rows import submit_job
from tests.scripted_server import ScriptedServer, labels, scripted_server
from tests.service_process import service
from tests.services import wait_for
from tests.worker_process import WorkerProcess, redis_url

ONE, OTHER = (Rubric(criteria=(Criterion(key="met", text=text),)) for text in ("Is good.", "Is short."))
YES = labels(Yes=0.9, No=0.1)
JOBS = 128


def judge_at(server: ScriptedServer, concurrency: int) -> Judge:
    endpoint = Endpoint(base_url=server.url, max_retries=0, concurrency=concurrency)
    return Judge(name=f"http-{concurrency}", model="scripted", endpoint=endpoint)


@contextlib.contextmanager
def starting_workers(db: Database, log: Path, broker: str | None = None) -> Iterator[Callable[[], None]]:
    """Yield a function that starts a worker and waits until it runs; all are killed at the end."""
    settings: dict[str, Any] = {"database_url": db.url, "broker_url": broker or redis_url()}
    attach(db, Settings.model_validate(settings))
    started: list[WorkerProcess] = []

    def running() -> int:
        with db.read() as session:
            return leases.running_workers(session)

    def start() -> None:
        started.append(WorkerProcess(log, **settings))
        wait_for(lambda: running() == len(started), log)

    try:
        yield start
    finally:
        for worker in started:
            worker.kill()


def finished(db: Database, job: int) -> int:
    with db.read() as session:
        return jobs.progress(session, job).done


def test_small_job_is_in_flight_at_once_in_all_workers(each_db: Database, tmp_path: Path) -> None:
    """Three workers take a third of the judge's 48 calls each: all 40 of the job are in flight together."""
    log = tmp_path / "log"
    with scripted_server(replace(YES, delay_s=8.0)) as server, starting_workers(each_db, log) as start:
        for _ in range(3):
            start()
        job = submit_job(each_db, 40, judge=judge_at(server, 48), rubric=ONE)
        wait_for(lambda: finished(each_db, job) == 40, log)
        assert (server.max_concurrent, server.count) == (40, 40)
        server.script, server.max_concurrent = replace(YES, delay_s=1.0), 0
        job = submit_job(each_db, 40, judge=judge_at(server, 6), rubric=OTHER)
        wait_for(lambda: finished(each_db, job) == 40, log)
        assert server.max_concurrent == 6, "also while they begin one after another"


def test_many_jobs_at_once_send_few_messages(each_db: Database, tmp_path: Path) -> None:
    """Of a service: a message that is not read yet serves the jobs that come meanwhile, and each is sent once."""
    log, broker = tmp_path / "log", redis_url()
    with (
        scripted_server(YES) as server,
        starting_workers(each_db, log, broker) as start,
        service(tmp_path, each_db.url, broker_url=broker) as address,
        httpx2.Client(base_url=address, timeout=90) as http,
    ):
        start()
        submit_job(each_db, 1, judge=judge_at(server, 16), rubric=ONE)

        def submit(number: int) -> int:
            about = {"judge": "http-16", "prompts": [1], "completions": [[f"another {number}"]], "timeout": 0}
            return int(http.post("/v1/rewards", json=about).raise_for_status().json()["job_id"])

        with ThreadPoolExecutor(64) as clients:
            ids = list(clients.map(submit, range(JOBS)))
        wait_for(lambda: all(finished(each_db, job) for job in reversed(ids)), log)
        celery = make_celery(Settings(broker_url=broker))
        with celery.connection() as connection:
            wait_for(lambda: connection.default_channel.queue_declare("rubricsvc").message_count == 0, log)
        (stats,) = celery.control.inspect(timeout=10).stats().values()
        assert 0 < stats["total"][leases.SCORE] <= JOBS


def both_hold_items(db: Database) -> bool:
    with db.read() as session:
        return leases.drains(session, 1) == 2


def test_worker_that_starts_later_takes_part(db: Database, tmp_path: Path) -> None:
    """The free slot of the first worker takes the message for the second one, and passes it on."""
    log = tmp_path / "log"
    with scripted_server(replace(YES, delay_s=1.0)) as server, starting_workers(db, log) as start:
        start()
        job = submit_job(db, 400, judge=judge_at(server, 4), rubric=ONE)
        wait_for(lambda: server.max_concurrent == 4, log)
        start()
        wait_for(lambda: both_hold_items(db), log)
        time.sleep(4.0)  # several calls of both
        assert server.max_concurrent == 4, "also while it joins"
        with db.write() as session:
            jobs.cancel(session, job)
