"""Trackio: a run of the project ``TRACKIO_PROJECT`` (``rubricsvc``), here or in the Space ``TRACKIO_SPACE_ID``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from trainer.history import Metrics
from trainer.trackers import Tracker, evaluation_numbers, numbers

PROJECT = "rubricsvc"


class Trackio:
    """Logs to a trackio run, which a resumed run continues by its name."""

    repeats = False
    _run: Any

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Begin the run, or continue it."""
        import trackio

        with redirect_stdout(sys.stderr):  # trackio prints, and the output of a command is data
            self._run = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT") or PROJECT,
                name=name,
                resume="allow",
                config=dict(config),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def step(self, metrics: Metrics) -> None:
        """Log the metrics of a step."""
        self._run.log(numbers(metrics), step=metrics["step"])

    def evaluation(self, line: Metrics) -> None:
        """Log the estimates of an evaluation."""
        self._run.log(evaluation_numbers(line), step=line["step"])

    def close(self) -> None:
        """Send what is left."""
        with redirect_stdout(sys.stderr):
            self._run.finish()


def tracker(_folder: Path | None) -> Tracker:
    """Return the tracker."""
    return Trackio()
