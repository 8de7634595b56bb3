"""Weights & Biases, as its environment variables say: ``WANDB_PROJECT`` (``rubricsvc``), ``WANDB_MODE`` and others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.history import Metrics
from trainer.trackers import Tracker, evaluation_numbers, numbers

PROJECT = "rubricsvc"
_MAX_ID_CHARS = 128
EVAL_STEP = "eval/step"
"""The axis of evaluations: W&B refuses values of a step that is not its newest."""


class WeightsAndBiases:
    """Logs to a W&B run, which a resumed run continues by its id."""

    repeats = False
    _run: Any

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Begin the run, or continue it."""
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=os.environ.get("WANDB_RUN_ID") or re.sub(r"[^A-Za-z0-9_.-]", "-", name)[-_MAX_ID_CHARS:],
            name=os.environ.get("WANDB_NAME") or name,
            resume="allow",
            config=dict(config),
            settings=wandb.Settings(console="off"),
        )
        self._run.define_metric(EVAL_STEP)
        self._run.define_metric("eval/*", step_metric=EVAL_STEP)

    def step(self, metrics: Metrics) -> None:
        """Log the metrics of a step."""
        self._run.log(numbers(metrics), step=metrics["step"])

    def evaluation(self, line: Metrics) -> None:
        """Log the estimates of an evaluation beside the metrics of the newest step."""
        self._run.log({EVAL_STEP: line["step"], **evaluation_numbers(line)}, commit=False)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


def tracker(_folder: Path | None) -> Tracker:
    """Return the tracker."""
    return WeightsAndBiases()
