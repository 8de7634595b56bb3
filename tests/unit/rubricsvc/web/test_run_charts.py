"""Curves of a training run: single steps of a short run, windows with intervals of a long one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rubricsvc.web.charts import band_note, metric_points

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
