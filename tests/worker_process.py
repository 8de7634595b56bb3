"""A real `rubricsvc worker` in a process of its own, to be watched, stopped and killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.services import REDIS


def redis_url() -> str:
    """A Redis database of the test's own, also among processes; skips where the run has no Redis."""
    if (url := os.environ.get(REDIS)) is None:
        pytest.skip(f"needs Redis: run the tests with `make test`, or set {REDIS}")
    with redis.Redis.from_url(url) as server:
        count = int(server.config_get("databases")["databases"])
        number = 1 + int(server.incr("rubricsvc-tests")) % (count - 1)
    return f"{url.rsplit('/', 1)[0]}/{number}"


class WorkerProcess:
    """``settings`` are given as RUBRICSVC_* variables; what the worker logs goes to ``log``. Another ``command`` may
    work too: ``jobs wait``."""

    def __init__(self, log: Path, *arguments: str, command: str = "worker", **settings: Any) -> None:
        self.log = log
        variables = {f"RUBRICSVC_{name.upper()}": str(value) for name, value in settings.items()}
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rubricsvc", *command.split(), *arguments],
                env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self, patience: float = 30) -> int:
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(patience)
