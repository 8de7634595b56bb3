"""What scoring costs beside the model: queue, judging code and database, with judges that answer at once.

    python -m bench.bench_scoring [--completions N] [--flat N]

Runs of ten criteria a completion: an engine inside the process on SQLite and on PostgreSQL; over a real socket with one
request a verdict, and with one request a completion (written, and readouts in lists of prompts). The server runs in a
process of its own on the same machine. Then how long 320 calls of 2 s take, 64 at once, and how long after a job's
cancelling its calls are gone; and the resident memory after 1,000 and after N completions. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rubricsvc import telemetry
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database
from tests import instant_engine  # noqa: F401 - registers the engine "instant"
from tests.databases import fresh_url
from tests.scripted_server import labels, scripted_server, server_process
from workers.queue import drain
from workers.queue.app import embedded_worker
from workers.scoring.completions import score

CRITERIA = 10
RUBRIC = Rubric(criteria=tuple(Criterion(key=f"c{n}", text=f"States fact number {n} of the list.") for n in range(10)))


def submit(db: Database, judge: Judge, count: int) -> int:
    """A job over ``count`` completions of 8 prompts; its id."""
    with db.write() as session:
        asked = [Prompt.of(f"Question {n}: what are the ten facts?") for n in range(8)]
        ids = [completions.add_prompt(session, one).id for one in asked]
        rubric = rubrics.add(session, RUBRIC, name="ten-facts")
        answers = ((ids[n % 8], Completion(text=f"Answer {n}. " + "Fact after fact. " * 40)) for n in range(count))
        pairs = [(id_, rubric.id) for id_ in completions.add_many(session, answers)]
        judge_id = judges.add(session, judge).id
        return jobs.submit(session, judge_id=judge_id, items=pairs).id


def finish(db: Database, job: int, watch: Callable[[int], None] | None = None) -> None:
    while True:
        with db.read() as session:
            status, progress = jobs.get(session, job).status, jobs.progress(session, job) if watch else None
        if watch is not None and progress is not None:
            watch(progress.done)
        if status not in ("queued", "in_progress"):
            assert status == "completed", status
            return
        time.sleep(0.2)


class Stages:
    """Wall time spent in each stage of the drainer."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        timed = [
            (drain.Drainer, "claim"),
            (leases, "record"),
            (leases, "finish"),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name in timed:
                stack.enter_context(patch.object(owner, name, self._timed(getattr(owner, name), name)))
            stack.enter_context(patch.object(drain, "score", self._timed_coroutine(score)))
            yield

    def _timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **options)
            if hasattr(result, "__next__"):
                result = list(result)
            self.seconds[name] += time.perf_counter() - start
            return result

        return call

    def _timed_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = await function(*args, **options)
            self.seconds["score"] += time.perf_counter() - start
            return result

        return call

    def shares(self, wall: float) -> str:
        parts = [f"{name} {100 * seconds / wall:.0f} %" for name, seconds in self.seconds.items()]
        rest = wall - sum(self.seconds.values())
        return ", ".join([*parts, f"the rest (loop, threads, outbox) {100 * max(rest, 0) / wall:.0f} %"])


def run(kind: str, judge: Judge, count: int, folder: Path, *, overlapping: bool = False) -> float:
    """Verdicts a second of one job, from its first claim to its last record."""
    db = Database(fresh_url(kind, folder))
    settings = Settings(database_url=db.url, claim_size=64, reconcile_seconds=60)
    warm = submit(db, judge, 64)
    stages = Stages()
    with embedded_worker(settings, db):
        finish(db, warm)
        with stages.watching():
            start = time.perf_counter()
            job = submit(db, judge, count)
            submitted = time.perf_counter()
            finish(db, job)
            wall = time.perf_counter() - submitted
    rate = count * CRITERIA / wall
    print(f"  {count} completions: {wall:.2f} s, {rate:,.0f} verdicts/s (submitting took {submitted - start:.2f} s)")
    print(f"  time by stage: {'calls overlap, score is not shown' if overlapping else stages.shares(wall)}")
    db.close()
    return rate


def slow_calls(folder: Path) -> tuple[float, float]:
    """Seconds that 320 calls of 2 s take, 64 at once; and from a job's cancelling until none of its calls is left."""
    db = Database(fresh_url("sqlite", folder))
    with scripted_server(replace(labels(Yes=0.9, No=0.1), delay_s=2.0), remember=False) as server:
        judge = Judge(name="slow", model="scripted", endpoint=Endpoint(base_url=server.url))
        with embedded_worker(Settings(database_url=db.url, reconcile_seconds=60), db):
            start = time.perf_counter()
            finish(db, submit(db, judge, 32))
            took = time.perf_counter() - start
            job = submit(db, judge.model_copy(update={"name": "stopped", "revision": "2"}), 32)
            while not server.concurrent:
                time.sleep(0.01)
            start = time.perf_counter()
            with db.write() as session:
                jobs.cancel(session, job)
            while server.concurrent:
                time.sleep(0.001)
            stopped = time.perf_counter() - start
    db.close()
    return took, stopped


def flatness(count: int, folder: Path) -> tuple[float, float]:
    """Resident MiB after 1,000 completions and after ``count``."""
    db = Database(fresh_url("sqlite", folder))
    seen: dict[int, float] = {}

    def watch(done: int) -> None:
        if done >= 1000:
            seen.setdefault(1000, resident())

    with embedded_worker(Settings(database_url=db.url, claim_size=64, reconcile_seconds=60), db):
        finish(db, submit(db, Judge(name="instant", engine="instant", model="none"), count), watch)
        last = resident()
    db.close()
    return seen.get(1000, last), last


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--completions", type=int, default=2000)
    arguments.add_argument("--flat", type=int, default=20_000)
    options = arguments.parse_args()
    count = options.completions
    telemetry.configure("WARNING")
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, server_process("instant") as url:
        folder = Path(name)
        instant = Judge(name="instant", engine="instant", model="none")
        remote = Judge(name="remote", model="scripted", endpoint=Endpoint(base_url=url, max_retries=0))
        at_once = remote.model_copy(update={"name": "at-once", "mode": "written", "criteria_per_call": 0})
        for kind in ("sqlite", "postgresql"):
            print(f"engine in the process, {kind}")
            figures[f"inprocess_{kind}_verdicts_per_s"] = run(kind, instant, count, folder)
        print("over a socket, one request a verdict, sqlite")
        figures["socket_per_verdict_verdicts_per_s"] = run("sqlite", remote, count // 5, folder, overlapping=True)
        print("over a socket, one request a completion, sqlite")
        figures["socket_per_completion_verdicts_per_s"] = run("sqlite", at_once, count // 2, folder, overlapping=True)
        with server_process("instant", kind="vllm") as vllm:
            listed = remote.model_copy(
                update={"name": "lists", "endpoint": remote.endpoint.model_copy(update={"base_url": vllm})}
            )
            print("over a socket, readouts in lists of prompts, sqlite")
            figures["socket_lists_verdicts_per_s"] = run("sqlite", listed, count // 2, folder, overlapping=True)
        took, stopped = slow_calls(folder)
        print(
            f"320 calls of 2 s, 64 at once: {took:.2f} s (5 waves are 10 s); gone {stopped:.2f} s after the cancelling"
        )
        figures |= {"slow_calls_s": took, "cancelled_after_s": stopped}
        print(f"memory, {options.flat} completions in one job")
        early, late = flatness(options.flat, folder)
        print(f"  after 1,000: {early:.0f} MiB, after {options.flat:,}: {late:.0f} MiB")
    figures |= {"memory_1000_mib": early, "memory_last_mib": late, "memory_ratio": late / early}
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
