"""Figures of criteria beside scipy, scikit-learn, krippendorff and sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rubricsvc.core.estimate import mean_estimate
from rubricsvc.stats import criteria
from rubricsvc.stats.criteria import Groups
from rubricsvc.stats.intervals import Floats

NAN = float("nan")


def random_values(rows: int = 60, columns: int = 4, *, missing: float = 0.1) -> tuple[Floats, np.ndarray]:
    random = np.random.default_rng(1)
    values = random.integers(0, 2, (rows, columns)).astype(float)
    values[random.random(values.shape) < missing] = NAN
    return values, random.integers(0, 12, rows)


def test_mean_estimates_agree_with_core() -> None:
    values, prompts = random_values()
    for column, found in zip(values.T, criteria.mean_estimates(values, Groups(prompts)), strict=True):
        known = ~np.isnan(column)
        expected = mean_estimate(column[known].tolist(), prompts[known].tolist())
        assert (found.value, found.low, found.high) == pytest.approx(
            (expected.value, expected.low, expected.high), rel=1e-3
        )


def test_met_estimates_of_independent_rows_are_wilsons() -> None:
    values = np.array([[1.0]] * 30 + [[0.2]] * 10)
    (found,) = criteria.met_estimates(values, Groups(np.arange(40)))
    expected = stats.binomtest(30, 40).proportion_ci(0.95, method="wilson")
    assert (found.value, found.low, found.high) == pytest.approx((0.75, expected.low, expected.high), abs=0.01)


def test_within_groups_by_hand() -> None:
    values = np.array([[1.0, 0.5], [0.0, 0.5], [1.0, 0.5], [1.0, NAN], [0.0, 1.0], [1.0, 0.0]])
    prompts = np.array([1, 1, 2, 2, 3, 4])  # 3 and 4 are alone
    found = criteria.within_groups(values, Groups(prompts))
    assert found.variance == pytest.approx([0.25, 0.0])  # (0.5 + 0) / (1 + 1), and 0 / 1
    assert found.varying == pytest.approx([0.5, 0.0])


def test_correlations_agree_with_scipy_on_shared_rows() -> None:
    values, _ = random_values()
    values[:, 3] = np.where(np.isnan(values[:, 3]), NAN, 1.0)  # a constant has none
    found, counts = criteria.correlations(values)
    for a in range(3):
        for b in range(3):
            both = ~np.isnan(values[:, [a, b]]).any(1)
            assert counts[a, b] == both.sum()
            assert found[a, b] == pytest.approx(stats.pearsonr(values[both, a], values[both, b]).statistic)
    assert np.isnan(found[3]).all()
