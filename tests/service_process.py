"""Commands of `rubricsvc` that run until they are stopped, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

from tests.services import free_port

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
