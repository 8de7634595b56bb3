"""Questions to a child process under a time limit that holds.

Some libraries may take exponential time, and no thread can stop them. So they run in a child process, one for each
process of ours, started at first use, killed when it is late, and gone when we are (its input closes).
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
said, sys.stdout = sys.stdout, sys.stderr
said.write("ready\\n")
said.flush()
for line in sys.stdin.buffer:
    try:
        reply = [answer(*json.loads(line)), None]
    except BaseException as error:
        reply = [None, f"{type(error).__name__}: {error}"]
    said.write(json.dumps(reply) + "\\n")
    said.flush()
"""

_START_S = 60.0
"""What a child may take to be there. None of it counts against a question."""


class ChildError(RuntimeError):
    """No answer: it took too long, or broke."""


class Child:
    """A child process that answers one question at a time. ``source`` defines ``answer(*question)``, in plain data."""

    def __init__(self, name: str, source: str, *flags: str, start_s: float = _START_S) -> None:
        self.name = name
        self._command = [sys.executable, "-I", *flags, "-c", source + _LOOP]
        self._start_s = start_s
        self._disowned: list[subprocess.Popen[bytes]] = []
        self._begin()
        atexit.register(self.close)

    def _begin(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, *question: Any, timeout_s: float) -> Any:
        """The answer, as plain data.

        Raises:
            ChildError: there is none within ``timeout_s``, or ``answer`` raised.
        """
        if self._owner != os.getpid():  # a forked worker must not speak on its parent's pipe
            self._disowned += [self.process] if self.process else []
            self._begin()
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
        """Send a question, if there is one, and wait for a line."""
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
            who = f"the {self.name}" if question else "the child process"
            raise ChildError(f"{who} died" if answered else f"{who} took longer than {timeout_s:g} s")
        return line

    def close(self) -> None:
        """Kill the child, where there is one and it is ours."""
        process, self.process = self.process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.communicate()
