"""Means of consecutive steps with intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rubricsvc.web.charts import window_size, windows


def test_window_size_is_a_fortieth_and_at_least_five_from_50_steps_on() -> None:
    for steps, size in [(0, 1), (49, 1), (50, 5), (200, 5), (239, 5), (240, 6), (4000, 100)]:
        assert window_size(steps) == size


def test_windows_have_the_t_interval_over_their_steps() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 12)
    first, last = windows([(step, float(value)) for step, value in enumerate(values, 1)], 5)
    assert (first.step, last.step) == (3.0, 9.0)
    for window, part in ((first, values[:5]), (last, values[5:])):
        expected = stats.t.interval(0.95, len(part) - 1, part.mean(), stats.sem(part))
        assert window.mean == pytest.approx(part.mean())
        assert (window.low, window.high) == pytest.approx(expected, abs=1e-4)
