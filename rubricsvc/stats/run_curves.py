"""Curves of a training run: means over windows of consecutive steps, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from rubricsvc.core.estimate import mean_estimate

MIN_STEPS = 50
"""A curve of fewer steps shows each of them."""
MIN_WINDOW = 5
MAX_WINDOWS = 40


class Window(NamedTuple):
    """The mean of consecutive steps with its 95 % interval; ``step`` is the mean of their numbers."""

    step: float
    mean: float
    low: float | None
    high: float | None


def window_size(steps: int) -> int:
    """Return how many steps a point of a curve stands for: 1 where it has too few for windows."""
    return max(MIN_WINDOW, steps // MAX_WINDOWS) if steps >= MIN_STEPS else 1


def windows(values: Sequence[tuple[int, float]], size: int) -> list[Window]:
    """Return the mean of each ``size`` consecutive steps with its 95 % t interval over them.

    ``values`` are steps, ascending, with their values. What is left at the end belongs to the last window. Steps count
    as independent: a trend within a window widens its interval.
    """
    count = max(len(values) // size, 1) if values else 0
    parts = [values[size * n : size * (n + 1) if n + 1 < count else None] for n in range(count)]
    return [_window([step for step, _ in part], [value for _, value in part]) for part in parts]


def _window(steps: Sequence[int], values: Sequence[float]) -> Window:
    estimate = mean_estimate(values, steps)
    return Window(fmean(steps), fmean(values), estimate.low, estimate.high)
