"""The service: commands that run until they are stopped, in processes of their own, or the API in a thread."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from rubricsvc.api.app import create_app
from rubricsvc.settings import Settings
from rubricsvc.store import leases
from rubricsvc.store.session import Database, relay
from tests.services import free_port
from workers.queue.drain import Drainer

TIMEOUT = 90.0


@contextlib.contextmanager
def command(log: Path, *args: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of `rubricsvc`. On leaving, it is sent SIGTERM and must exit with 0 and without a traceback."""
    environment = {**os.environ, **{f"RUBRICSVC_{name.upper()}": value for name, value in settings.items()}}
    with log.open("ab") as out:
        process = subprocess.Popen([sys.executable, "-m", "rubricsvc", *args], env=environment, stdout=out, stderr=out)
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT) == 0, log.read_text()[-3000:]
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()


@contextlib.contextmanager
def serving(
    tmp_path: Path, database_url: str, *options: str, **settings: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`rubricsvc serve`: its address and its process."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ("serve", f"--port={port}", *options)
    with command(tmp_path / "serve.log", *arguments, database_url=database_url, **settings) as process:
        deadline = time.monotonic() + TIMEOUT
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx2.TransportError):
                assert httpx2.get(f"{url}/healthz").json() == {"status": "ok"}
                break
            time.sleep(0.05)
        yield url, process


@contextlib.contextmanager
def service(tmp_path: Path, database_url: str, *options: str, **settings: str) -> Iterator[str]:
    """The address of `rubricsvc serve`."""
    with serving(tmp_path, database_url, *options, **settings) as (address, _):
        yield address


@contextlib.contextmanager
def drained(db: Database) -> Iterator[None]:
    """Have each job scored in a thread of this process as soon as it is submitted."""
    threads: list[threading.Thread] = []

    def drain(judge_id: int, message_id: int) -> None:
        with db.write() as session:
            leases.take_message(session, message_id)
        Drainer(db, Settings(database_url=db.url)).run(judge_id)

    def send(_task: str, args: list[object]) -> None:
        threads.append(threading.Thread(target=drain, args=args))
        threads[-1].start()

    db.on_commit = lambda: relay(db, send)
    yield
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def running(db: Database, *, at_port: int = 0, **fields: Any) -> Iterator[str]:
    """The service on a socket; its URL."""
    app = create_app(Settings(database_url=db.url, **fields), db)
    server = uvicorn.Server(uvicorn.Config(app, port=at_port, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
