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
from contextlib import suppress
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


class ChildError(RuntimeError):
    """The child timed out or raised."""


class Child:
    """A child process that runs one call at a time. ``source`` defines ``answer(*question)``, of JSON values."""

    def __init__(self, name: str, source: str, *flags: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self._command = [sys.executable, "-I", *flags, "-c", source + _LOOP]
        self._lock = threading.Lock()
        atexit.register(self.close)

        def forget() -> None:  # the child stays its parent's: a forked worker must not use its pipe
            self._inherited, self.process = self.process, None
            self._lock = threading.Lock()

        os.register_at_fork(after_in_child=forget)

    def ask(self, *question: Any, timeout_s: float) -> Any:
        """Return ``answer(*question)``."""
        with self._lock:
            try:
                if self.process is None or self.process.poll() is not None:
                    self.close()
                    pipe, silent = subprocess.PIPE, subprocess.DEVNULL
                    self.process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=silent)  # noqa: S603
                    assert self.process.stdout is not None  # noqa: S101 - a pipe
                    self.process.stdout.readline()  # its start does not count against the timeout
                process = self.process
                assert process.stdin is not None and process.stdout is not None  # noqa: S101 - as above
                with suppress(BrokenPipeError), selectors.DefaultSelector() as selector:
                    process.stdin.write(json.dumps(question).encode() + b"\n")
                    process.stdin.flush()
                    selector.register(process.stdout, selectors.EVENT_READ)
                    if not selector.select(timeout_s):
                        raise ChildError(f"the {self.name} took longer than {timeout_s:g} s")
                if not (line := process.stdout.readline()):
                    raise ChildError(f"the {self.name} crashed")
            except BaseException:
                self.close()
                raise
        answer, problem = json.loads(line)
        if problem:
            raise ChildError(problem)
        return answer

    def close(self) -> None:
        """Kill the child."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()
