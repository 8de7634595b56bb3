"""TensorBoard: event files in the folder ``tensorboard`` of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.history import Metrics
from trainer.trackers import Tracker, evaluation_numbers, numbers


class TensorBoard:
    """Writes event files. A resumed run discards the steps that it repeats."""

    repeats = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Open a new event file; readers leave out what earlier ones have after ``done`` steps."""
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        self._writer = make(str(self._folder), purge_step=done + 1 if done else 0)
        if not done:
            self._writer.add_text("config", f"```\n{json.dumps(config, indent=2)}\n```")

    def step(self, metrics: Metrics) -> None:
        """Write the metrics of a step to the disk."""
        self._write(numbers(metrics), metrics["step"])

    def evaluation(self, line: Metrics) -> None:
        """Write the estimates of an evaluation to the disk."""
        self._write(evaluation_numbers(line), line["step"])

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


def tracker(folder: Path | None) -> Tracker:
    """Return the tracker of the run in a folder."""
    return TensorBoard((folder or Path()) / "tensorboard")
