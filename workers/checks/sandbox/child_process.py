"""Calls of a function in a child process, with a time limit.

Some libraries may take exponential time, which no thread can interrupt. They run in a child process of each worker
process, which is started at first use, killed on timeout, and ends with its parent (its input closes).
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
from typing import Any

_LOOP = """
import json, sys
output, sys.stdout = sys.stdout, sys.stderr
output.write("ready\\n")
output.flush()
for line in sys.stdin.buffer:
    try:
        reply = [answer(*json.loads(line)), None]
    except BaseException as error:
        reply = [None, f"{type(error).__name__}: {error}"]
    output.write(json.dumps(reply) + "\\n")
    output.flush()
"""

_START_S = 60.0
"""Time limit for the start of a child. It does not count against a call."""


class ChildError(RuntimeError):
    """The child timed out or raised."""


class Child:
    """A child process that runs one call at a time. ``source`` defines ``answer(*question)``, of JSON values."""

    def __init__(self, name: str, source: str, *flags: str, start_s: float = _START_S) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self._command = [sys.executable, "-I", *flags, "-c", source + _LOOP]
        self._start_s = start_s
        self._lock = threading.Lock()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Leave the child to its parent: a forked worker must not use its pipe."""
        self._inherited, self.process = self.process, None
        self._lock = threading.Lock()

    def ask(self, *question: Any, timeout_s: float) -> Any:
        """Return ``answer(*question)``.

        Raises:
            ChildError: It took longer than ``timeout_s``, or raised.
        """
        with self._lock:
            process = self._started()
            line = self._exchange(process, json.dumps(question).encode() + b"\n", timeout_s)
        answer, problem = json.loads(line)
        if problem:
            raise ChildError(problem)
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.close()
            self.process = subprocess.Popen(  # noqa: S603 - our own source
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self._exchange(self.process, b"", self._start_s)
        return self.process

    def _exchange(self, process: subprocess.Popen[bytes], question: bytes, timeout_s: float) -> bytes:
        """Send a question, if there is one, and return the next line."""
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 - both are pipes, see above
        try:
            process.stdin.write(question)
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                answered = selector.select(timeout_s)
            line = process.stdout.readline() if answered else b""
        except BaseException:
            self.close()
            raise
        if not line:
            self.close()
            what = f"the {self.name}" if question else "the start of the child process"
            raise ChildError(f"{what} crashed" if answered else f"{what} took longer than {timeout_s:g} s")
        return line

    def close(self) -> None:
        """Kill the child."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()
