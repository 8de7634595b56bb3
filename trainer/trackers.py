"""Experiment trackers: TensorBoard, Trackio and Weights & Biases get the steps and evaluations of a run.

A tracker never stops a training. A resumed run continues that of the tracker: TensorBoard discards the steps that are
repeated, W&B keeps the earlier ones, and Trackio has them twice.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rubricsvc.errors import UnavailableError, cut

if TYPE_CHECKING:
    from trainer.history import Metrics

log = logging.getLogger(__name__)

PROJECT = "rubricsvc"
EVAL_STEP = "eval/step"
_MAX_ID_CHARS = 128
_MAX_REASON_CHARS = 300

Name = Literal["tensorboard", "trackio", "wandb"]


class Tracker(Protocol):
    """An experiment tracker. Its methods may raise any error."""

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Begin the run ``name``, or continue it after ``done`` steps. ``config`` is that of ``config.json``."""

    def log(self, values: Mapping[str, float], step: int, *, is_evaluation: bool) -> None:
        """Report the numbers of a step, or those of an evaluation after it."""

    def close(self) -> None:
        """Write what is left."""


def check_installed(names: Sequence[Name]) -> None:
    """Raise an UnavailableError that names all packages of trackers that are not installed."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        packages = f"the package{'s' * (len(missing) > 1)} {', '.join(missing)}"
        hint = f"pip install 'rubricsvc[{','.join(missing)}]', or remove it from `trackers`"
        raise UnavailableError(f"trackers: {packages} cannot be imported", hint=hint, path="trackers")


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are finite numbers, but the step."""
    return {
        name: value
        for name, value in metrics.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def evaluation_numbers(line: Metrics) -> dict[str, float]:
    """Return the estimates of an evaluation: ``eval/SCORE/mean``, with ``mean_low`` and ``mean_high``."""
    found: dict[str, Any] = {}
    for score, estimates in line["scores"].items():
        for name, estimate in estimates.items():
            key = f"eval/{score}/{name}"
            if isinstance(estimate, Mapping):
                found |= {key: estimate["value"], f"{key}_low": estimate["low"], f"{key}_high": estimate["high"]}
            else:
                found[key] = estimate
    return numbers(found)


class Tracking:
    """The trackers of a run; one that raises an error is left out until the run is resumed.

    Args:
        names: Which.
        folder: Folder of the run.
        run: The run's name, the same at each resume.
    """

    def __init__(self, names: Sequence[Name] = (), folder: Path | None = None, run: str = "") -> None:
        made: dict[Name, Callable[[], Tracker]] = {
            "tensorboard": lambda: TensorBoard(folder),
            "trackio": Trackio,
            "wandb": WeightsAndBiases,
        }
        self._run, self._newest_evaluation = run, -1
        self.trackers: dict[str, Tracker] = {name: made[name]() for name in names}

    @contextmanager
    def running(self, config: Mapping[str, Any], steps: Sequence[Metrics]) -> Iterator[None]:
        """Begin the run, or continue it after ``steps``, around the block that trains."""
        done = steps[-1]["step"] if steps else 0
        self._newest_evaluation = done if done else -1
        self._each(lambda tracker: tracker.begin(config, self._run, done))
        try:
            yield
        finally:
            self._each(lambda tracker: tracker.close())

    def step(self, metrics: Metrics) -> None:
        """Report the metrics of a step."""
        self._each(lambda tracker: tracker.log(numbers(metrics), metrics["step"], is_evaluation=False))

    def evaluation(self, line: Metrics) -> None:
        """Report an evaluation that is newer than those before."""
        if line["step"] > self._newest_evaluation:
            self._newest_evaluation = line["step"]
            self._each(lambda tracker: tracker.log(evaluation_numbers(line), line["step"], is_evaluation=True))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
                del self.trackers[name]
                reason = cut(f"{type(error).__name__}: {error}", _MAX_REASON_CHARS)
                log.warning("the tracker %s does not get all metrics of this run: %s", name, reason)


class TensorBoard:
    """Event files in the folder ``tensorboard`` of the run. A resumed run discards the steps that it repeats."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = (folder or Path()) / "tensorboard"

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Open a new event file; readers leave out what earlier ones have after ``done`` steps."""
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        self._writer = make(str(self._folder), purge_step=done + 1 if done else 0)
        if not done:
            self._writer.add_text("config", f"```\n{json.dumps(config, indent=2)}\n```")

    def log(self, values: Mapping[str, float], step: int, *, is_evaluation: bool) -> None:
        """Write values to the disk."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class Trackio:
    """A run of the project ``TRACKIO_PROJECT`` (``rubricsvc``), here or in the Space ``TRACKIO_SPACE_ID``."""

    _run: Any

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Begin the run, or continue it by its name."""
        import trackio

        project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        off: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        with redirect_stdout(sys.stderr):  # trackio prints, and the output of a command is data
            self._run = trackio.init(project=project, name=name, resume="allow", config=dict(config), **off)

    def log(self, values: Mapping[str, float], step: int, *, is_evaluation: bool) -> None:
        """Log values."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Send what is left."""
        with redirect_stdout(sys.stderr):
            self._run.finish()


class WeightsAndBiases:
    """A run of W&B, as its environment variables say: ``WANDB_PROJECT`` (``rubricsvc``), ``WANDB_MODE`` and others."""

    _run: Any

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Begin the run, or continue it by its id."""
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

    def log(self, values: Mapping[str, float], step: int, *, is_evaluation: bool) -> None:
        """Log values. Those of an evaluation have an axis of their own, since W&B refuses steps before its newest."""
        if is_evaluation:
            self._run.log({EVAL_STEP: step, **values}, commit=False)
        else:
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


NO_TRACKING = Tracking()
