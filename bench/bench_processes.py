"""What a second process of a worker is worth: verdicts/s and processor seconds with `--pool prefork`, on PostgreSQL.

    python -m tests.services python -m bench.bench_processes [--completions N] [--processes 1 2]

The judge is a server of its own process that sends the same bytes for every call, which costs it 0.03 ms. A completion
has ten criteria: written with one request a verdict, then with one a completion; then a job so small that one process
could claim all of it. Linux only (``/proc``). The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import text

from bench.bench_scoring import CRITERIA, finish, submit
from bench.bench_spread import running_workers
from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.store.session import Database
from tests.databases import fresh_url
from tests.scripted_server import text_reply

SMALL = 32
"""Completions of the small job: as many as a worker claims at once."""


def _response(criteria: int) -> bytes:
    verdicts = [
        {"criterion": f"C{n}", "rationale": "So it is.", "evidence": [], "verdict": "met"}
        for n in range(1, criteria + 1)
    ]
    body = text_reply(json.dumps(verdicts[0] if criteria == 1 else {"verdicts": verdicts})).payload()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Canned(asyncio.Protocol):
    """Sends the same response to every request; requests with a schema of ``verdicts`` get all ten."""

    one, ten = _response(1), _response(CRITERIA)

    def connection_made(self, transport: Any) -> None:
        self.transport, self.received = transport, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, _, body = self.received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        if len(body) >= length:
            self.received = b""  # a connection has one request at a time
            self.transport.write(self.ten if b'"verdicts"' in body else self.one)


def _serve(ports: Any) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", backlog=1024)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextlib.contextmanager
def canned_server() -> Iterator[tuple[str, int]]:
    """The base URL and the process id."""
    spawn = multiprocessing.get_context("spawn")
    ports = spawn.Queue()
    process = spawn.Process(target=_serve, args=(ports,), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield f"http://127.0.0.1:{ports.get()}/v1", process.pid
    finally:
        process.kill()


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def seconds(pid: int) -> float:
    """Processor seconds of a process and of its children that have ended."""
    return sum(map(int, _stat(pid)[11:15])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def of_all(pid: int) -> float:
    """Processor seconds of a process and all its children."""
    return seconds(pid) + sum(map(seconds, children(pid)))


def measure(judges: list[tuple[Judge, int]], server: int, processes: int, folder: Path) -> dict[str, float]:
    """Verdicts a second of each job, by the name of its judge; jobs that warm the processes up come first."""
    db, rates = Database(fresh_url("postgresql", folder)), dict[str, float]()
    with (
        running_workers(db, 1, folder, "--pool=prefork", f"--concurrency={processes}") as (worker,),
        db.read() as session,
    ):
        postgres = int(_stat(session.scalars(text("select pg_backend_pid()")).one())[1])  # the backend's parent
        for number in range(2):
            warm = judges[0][0].model_copy(update={"name": f"warm-{number}", "revision": str(number)})
            finish(db, submit(db, warm, 256))
        for judge, count in judges:
            pids = children(worker.process.pid)
            before = of_all(postgres), seconds(server), *map(seconds, pids)
            job, start = submit(db, judge, count), time.perf_counter()
            finish(db, job)
            wall = time.perf_counter() - start
            after = of_all(postgres), seconds(server), *map(seconds, pids)
            spent = [round(b - a, 2) for a, b in zip(before, after, strict=True)]
            rates[judge.name] = count * CRITERIA / wall
            print(f"{judge.name}, {processes} processes: {count} completions, {rates[judge.name]:,.0f} verdicts/s")
            print(f"  processor seconds: {spent[2:]} of the worker's, PostgreSQL {spent[0]}, judge {spent[1]}")
    db.close()
    return rates


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--completions", type=int, default=600)
    arguments.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    options = arguments.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, canned_server() as (url, server):
        base = Judge(name="request-a-verdict", model="m", mode="written", endpoint=Endpoint(base_url=url))
        base = base.model_copy(update={"criteria_per_call": 1})
        at_once = base.model_copy(update={"name": "request-a-completion", "criteria_per_call": 0})
        small = base.model_copy(update={"name": "small-job", "revision": "2"})
        jobs = [(base, options.completions), (at_once, 3 * options.completions), (small, SMALL)]
        for processes in options.processes:
            folder = Path(name, str(processes))
            folder.mkdir()
            for judge, rate in measure(jobs, server, processes, folder).items():
                figures[f"{judge}_{processes}_verdicts_per_s"] = round(rate)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
