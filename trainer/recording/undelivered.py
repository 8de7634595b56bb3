"""What a run has to deliver to its record, in a file that survives the process."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from threading import Lock

from rubricsvc.schemas.runs import STEP, RunEvaluation, RunHeartbeat, RunStep
from trainer.files import replace_text

log = logging.getLogger(__name__)

Report = RunStep | RunEvaluation | RunHeartbeat
"""What is delivered of a run."""


class Undelivered:
    """What is to be delivered, oldest first, in a file that survives the process. One thread appends, one pops."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._offset = 0

    def __bool__(self) -> bool:
        return self.path.exists()

    def append(self, event: Report) -> None:
        """Write an event to the disk. After an error the file is as before."""
        line = event.model_dump_json().encode() + b"\n"
        with self._lock, self.path.open("ab") as file:
            before = file.tell()
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise

    def first(self) -> Report | None:
        """Return the oldest event; None if there is none."""
        line = self._first_line()
        return _parsed(line) if line else None

    def pop(self) -> None:
        """Remove the oldest event."""
        with self._lock:
            self._offset += len(self._first_line())
            if self._offset >= self.path.stat().st_size:
                self.path.unlink()
                self._offset = 0

    def keep_steps(self, done: int) -> None:
        """Remove all but the steps up to ``done`` with their evaluations, and the baselines.

        A resumed run repeats the others, and reports a new state. If a line is damaged, a copy of the file is kept.
        """
        if not self:
            return
        kept, damaged = [], 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                if _is_kept(_parsed(line), done):
                    kept.append(line)
            except ValueError:
                damaged += 1
        if damaged:
            copy = self.path.with_name(f"damaged-{self.path.stem}-{time.time_ns()}{self.path.suffix}")
            self.path.rename(copy)
            log.warning("%d lines of %s are damaged; the file is kept as %s", damaged, self.path, copy)
        if kept:
            replace_text(self.path, b"".join(kept).decode())
        elif not damaged:
            self.path.unlink()

    def _first_line(self) -> bytes:
        """Return the first complete line that is not popped; empty if there is none."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                line = file.readline()
        except FileNotFoundError:
            return b""
        return line if line.endswith(b"\n") else b""


def _parsed(line: bytes) -> Report:
    data = json.loads(line)
    if not isinstance(data, dict) or not line.endswith(b"\n"):
        raise ValueError("not a whole report")
    kind = RunHeartbeat if "state" in data else RunEvaluation if "line" in data else RunStep
    return kind.model_validate(data)


def _is_kept(event: Report, done: int) -> bool:
    if isinstance(event, RunHeartbeat):
        return False
    return event.step <= done or (isinstance(event, RunEvaluation) and event.name != STEP)
