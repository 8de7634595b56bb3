"""Deliver the steps and evaluations of a run to experiment trackers, each once.

A tracker never stops a training. ``trackers.json`` in the run's folder says which steps each tracker has, so that a
resumed run goes on where the tracker is, and catches up with what it lacks.
"""

from __future__ import annotations

import json
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rubricsvc.errors import UnavailableError, cut
from trainer.history import replace_text

if TYPE_CHECKING:
    from trainer.history import Metrics

log = logging.getLogger(__name__)

STATE = "trackers.json"
_MAX_REASON_CHARS = 300

Name = Literal["tensorboard", "trackio", "wandb"]
Kind = Literal["step", "evaluation"]


class Tracker(Protocol):
    """An experiment tracker. Its methods may raise any error."""

    repeats: bool
    """Whether steps that are repeated after a resume replace the earlier ones; else the earlier ones stay."""

    def begin(self, config: Mapping[str, Any], name: str, done: int) -> None:
        """Begin the run ``name``, or continue it after ``done`` steps. ``config`` is that of ``config.json``."""

    def step(self, metrics: Metrics) -> None:
        """Report the metrics of a step."""

    def evaluation(self, line: Metrics) -> None:
        """Report an evaluation on held-out prompts."""

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
    """The trackers of a run.

    Args:
        names: Which.
        folder: Folder of the run.
        run: The run's name, the same at each resume.
        trackers: The trackers by name, in place of those of this package.
    """

    def __init__(
        self,
        names: Sequence[Name] = (),
        folder: Path | None = None,
        run: str = "",
        *,
        trackers: Mapping[str, Tracker] | None = None,
    ) -> None:
        self._folder, self._run = folder, run
        given = trackers if trackers is not None else {name: _made(name, folder) for name in names}
        self._deliveries = {name: _Delivery(name, tracker) for name, tracker in given.items()}

    @contextmanager
    def running(self, config: Mapping[str, Any], steps: Sequence[Metrics]) -> Iterator[None]:
        """Begin the run, or continue it after ``steps``, around the block that trains."""
        saved = self._saved()
        for name, delivery in self._deliveries.items():
            delivery.begin(config, self._run, steps[-1]["step"] if steps else 0, saved.get(name, {}))
        for step in steps:
            self.step(step)
        try:
            yield
        finally:
            for delivery in self._deliveries.values():
                delivery.close()
            self._save()

    def step(self, metrics: Metrics) -> None:
        """Report the metrics of a step to the trackers that do not have it."""
        self._send("step", metrics)

    def evaluation(self, line: Metrics) -> None:
        """Report an evaluation to the trackers that do not have it."""
        self._send("evaluation", line)

    def _send(self, kind: Kind, line: Metrics) -> None:
        sent = [delivery.send(kind, line) for delivery in self._deliveries.values()]
        if any(sent):
            self._save()

    def _saved(self) -> dict[str, Any]:
        try:
            saved = json.loads((self._folder / STATE).read_bytes()) if self._folder else {}
            trackers: dict[str, Any] = saved["trackers"] if saved["run"] == self._run else {}
        except (OSError, ValueError, KeyError, TypeError):  # none yet
            return {}
        return trackers

    def _save(self) -> None:
        if self._folder is None or not self._deliveries:
            return
        trackers = self._saved() | {name: delivery.newest for name, delivery in self._deliveries.items()}
        try:
            replace_text(self._folder / STATE, json.dumps({"run": self._run, "trackers": trackers}))
        except OSError as error:
            log.warning("cannot write %s: %s", self._folder / STATE, error)


class _Delivery:
    """What one tracker has, and what it does not have yet because of an error."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self.newest: dict[Kind, int] = {"step": -1, "evaluation": -1}
        self._name, self._tracker = name, tracker
        self._waiting: deque[tuple[Kind, Metrics]] = deque()
        self._is_running = self._is_warned = False

    def begin(self, config: Mapping[str, Any], run: str, done: int, newest: Mapping[Kind, int]) -> None:
        self.newest |= newest
        if self._tracker.repeats:
            self.newest = {kind: min(step, done or -1) for kind, step in self.newest.items()}
        self._is_running = self._attempt(lambda: self._tracker.begin(config, run, done))

    def send(self, kind: Kind, line: Metrics) -> bool:
        """Report a line after those that wait; return whether the tracker has more than before."""
        if not self._is_running or line["step"] <= self.newest[kind]:
            return False
        self._waiting.append((kind, line))
        before = dict(self.newest)
        self._attempt(self._deliver)
        return self.newest != before

    def close(self) -> None:
        if self._is_running:
            self._attempt(self._deliver)
            self._attempt(self._tracker.close)
        self._is_running = False

    def _deliver(self) -> None:
        while self._waiting:
            kind, line = self._waiting[0]
            (self._tracker.step if kind == "step" else self._tracker.evaluation)(line)
            self._waiting.popleft()
            self.newest[kind] = line["step"]

    def _attempt(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            if not self._is_warned:
                reason = cut(f"{type(error).__name__}: {error}", _MAX_REASON_CHARS)
                log.warning("the tracker %s does not get all metrics of this run: %s", self._name, reason)
            self._is_warned = True
            return False
        return True


def _made(name: Name, folder: Path | None) -> Tracker:
    tracker: Tracker = import_module(f"trainer.trackers.{name}").tracker(folder)
    return tracker


NO_TRACKING = Tracking()
