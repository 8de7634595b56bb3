"""The history of a run: a line of metrics for each step, in files that survive a loss of power."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from rubricsvc.errors import InvalidError


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: an error keeps the earlier content."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    sync(part)
    part.replace(path)


Metrics = dict[str, Any]
"""Metrics of a step, or an evaluation, as plain data."""

METRICS = "metrics.jsonl"


class History:
    """A run's steps, oldest first, including those before a resume. ``stopped``: it ended early, for ``stop_reason``.

    Each step is a line of the file ``name``, written before the next step. Without a folder they are in memory only.
    ``evaluations`` are the lines of the evaluations on held-out prompts.
    """

    def __init__(self, folder: Path | None, last_step: int = 0, name: str = METRICS) -> None:
        """Continue after ``last_step``: later lines, of a run that was cut off, are dropped."""
        self.stopped = False
        self.stop_reason = "asked to stop"
        self.evaluations: list[Metrics] = []
        self.steps = [line for line in read(folder, name) if line["step"] <= last_step] if folder else []
        self._path = folder / name if folder else None
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self._path, "".join(line_of(step) for step in self.steps))

    def add(self, metrics: Metrics) -> Metrics:
        """Record a step and return it as recorded, with None for NaN and infinity."""
        recorded = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in metrics.items()
        }
        self.steps.append(recorded)
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line_of(recorded))
                file.flush()
                os.fsync(file.fileno())  # a checkpoint must not be ahead of the metrics
        return recorded


def read(folder: Path, name: str = METRICS) -> list[Metrics]:
    """Return the steps of the run in ``folder``. An incomplete last line is left out; a damaged one is an error."""
    path = folder / name
    if not path.is_file():
        return []
    steps: list[Metrics] = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            steps.append(json.loads(line))
            steps[-1]["step"] += 0  # fails unless it is a number
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidError(f"{path}, line {number}: not the metrics of a step", hint="delete the line") from error
    return steps


def line_of(metrics: Metrics) -> str:
    """Return metrics as a line of JSON."""
    return json.dumps(metrics, allow_nan=False) + "\n"
