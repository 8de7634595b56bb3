"""Curves of a training run: single steps of a short run, windows with intervals of a long one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rubricsvc.web.charts import curves, metric_points, window_size, windows

NAMES = ("reward", "kl/start", "completions/mean_length", "rewards/clear/mean")


def metrics(steps: int) -> list[dict[str, Any]]:
    noise = random.Random(0)
    return [
        {"step": step, "reward_std": 0.2, "completions/min_length": 1, "completions/max_length": 99}
        | {name: noise.gauss(0.5, 0.1) for name in NAMES}
        for step in range(1, steps + 1)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_metric_points_of_a_long_run_are_windows_with_intervals(name: str) -> None:
    points, note = metric_points(metrics(62), [name])
    assert [point.step for point in points] == [*range(3, 57, 5), 59.0]
    assert all(point.low is not None and point.low < point.value < (point.high or 0.0) for point in points)
    assert "5 consecutive" in note


STEPS = [
    {"step": 1, "reward": 0.1, "tools/calls": 0.5, "tools/calls/search": 0.5, "tools/valid_fraction": None},
    {"step": 2, "reward": 0.2, "tools/calls": 1.0, "tools/calls/open": 1.0, "tools/valid_fraction": 0.5},
]


def test_curves_count_a_tool_that_a_step_did_not_call_as_zero() -> None:
    found = {one.heading: one for one in curves(STEPS)}
    assert list(found) == ["Reward", "Well-formed calls", "Calls of tools"]
    calls = [(one.series, one.step, one.value) for one in found["Calls of tools"].points]
    assert calls == [("open", 1, 0.0), ("open", 2, 1.0), ("search", 1, 0.5), ("search", 2, 0.0)]
    assert [one.step for one in found["Well-formed calls"].points] == [2]


def test_window_size_is_a_fortieth_and_at_least_five_from_50_steps_on() -> None:
    for steps, size in [(0, 1), (49, 1), (50, 5), (200, 5), (239, 5), (240, 6), (4000, 100)]:
        assert window_size(steps) == size


def test_windows_have_the_t_interval_over_their_steps() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 12)
    first, last = windows("reward", [(step, float(value)) for step, value in enumerate(values, 1)], 5)
    assert (first.step, last.step) == (3.0, 9.0)
    for window, part in ((first, values[:5]), (last, values[5:])):
        expected = stats.t.interval(0.95, len(part) - 1, part.mean(), stats.sem(part))
        assert window.value == pytest.approx(part.mean())
        assert (window.low, window.high) == pytest.approx(expected, abs=1e-4)
