"""Curves of a training run: single steps of a short run, windows with intervals of a long one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rubricsvc.web.run_charts import band_note, criterion_points, metric_points

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
    points = metric_points(metrics(62), [name])
    assert [point.step for point in points] == [*range(3, 57, 5), 59.0]
    assert all(point.low is not None and point.low < point.value < (point.high or 0.0) for point in points)
    assert "5 consecutive" in band_note(metrics(62), [name])


def test_metric_points_of_a_short_run_are_its_steps() -> None:
    steps = metrics(49)
    reward, length, kl = (metric_points(steps, [name]) for name in ("reward", "completions/mean_length", "kl/start"))
    assert [point.step for point in reward] == list(range(1, 50))
    assert reward[0].high == pytest.approx(reward[0].value + 0.2)
    assert (length[0].low, length[0].high, kl[0].low) == (1, 99, None)
    assert "consecutive" not in band_note(steps, ["reward", "kl/start"])


def test_metric_points_leave_out_what_was_not_measured() -> None:
    """A metric of every second step has windows of the steps that have it; one of too few has single points."""
    steps = metrics(120)
    for step in steps:
        if step["step"] % 2:
            step["kl/start"] = None
        if step["step"] % 12:
            del step["rewards/clear/mean"]
    assert [point.step for point in metric_points(steps, ["kl/start"])][:2] == [6.0, 16.0]
    (first, *_) = criterion_points(steps, ["rewards/clear/mean"])
    assert (first.series, first.step, first.low) == ("clear", 12, None)
