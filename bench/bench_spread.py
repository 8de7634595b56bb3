"""How a job spreads over workers: calls in flight and seconds of 40 and of 300 items.

    python -m tests.services python -m bench.bench_spread [--workers 3] [--concurrency 16] [--delay 1.0]

Real Celery workers over Redis and PostgreSQL (``--sqlite``: one file), and a server whose every call takes a second. An
item has one criterion, so that it is one call. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import Database, attach
from tests.databases import fresh_url
from tests.rows import submit_job
from tests.scripted_server import labels, scripted_server
from tests.worker_process import WorkerProcess, redis_url

SIZES = (12, 40, 300)
"""The first job warms the workers up."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--delay", type=float, default=1.0)
    parser.add_argument("--sqlite", action="store_true")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = Database(fresh_url("sqlite" if options.sqlite else "postgresql", folder))
        reply = replace(labels(Yes=0.9, No=0.1), delay_s=options.delay)
        with running_workers(db, options.workers, folder), scripted_server(reply, remember=False) as server:
            endpoint = Endpoint(base_url=server.url, max_retries=0, concurrency=options.concurrency)
            judge = Judge(name="delayed", model="scripted", endpoint=endpoint)
            for size in SIZES:
                rubric = Rubric(criteria=(Criterion(key="met", text=f"Is one of the best {size}."),))  # a new question
                server.max_concurrent = 0
                start = time.perf_counter()
                job = submit_job(db, size, judge=judge, rubric=rubric)
                finish(db, job)
                took = time.perf_counter() - start
                in_flight = options.workers * options.concurrency
                ideal = -(-size // in_flight) * options.delay
                print(f"{size} items: {server.max_concurrent} calls in flight, {took:.2f} s (ideal {ideal:.1f} s)")
                figures |= {f"in_flight_{size}": server.max_concurrent, f"seconds_{size}": round(took, 2)}
        db.close()
    print(json.dumps(figures))


@contextlib.contextmanager
def running_workers(db: Database, count: int, folder: Path, *arguments: str) -> Iterator[list[WorkerProcess]]:
    """Start so many workers and wait until they listen; stop them at the end."""
    settings = {"database_url": db.url, "broker_url": redis_url()}
    attach(db, Settings.model_validate(settings))
    processes = [WorkerProcess(folder / "log", *arguments, **settings) for _ in range(count)]
    try:
        while True:
            with db.read() as session:
                if leases.running_workers(session) == count:
                    break
            time.sleep(0.1)
        time.sleep(2)  # all listen, and none is busy with its start
        yield processes
    finally:
        for process in processes:
            process.stop()


def finish(db: Database, job: int) -> None:
    while True:
        with db.read() as session:
            status = jobs.get(session, job).status
        if status not in ("queued", "in_progress"):
            assert status == "completed", status
            return
        time.sleep(0.05)


if __name__ == "__main__":
    main()
