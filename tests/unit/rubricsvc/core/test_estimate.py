"""Means with intervals over prompts, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rubricsvc.core.estimate import MIN_CLUSTERS, mean_estimate, ratio_estimate


@pytest.mark.parametrize("prompts", [5, 6, 12, 60])
@pytest.mark.parametrize("samples", [1, 4])
def test_mean_estimate_of_equal_prompts_is_scipys_t_interval_of_their_means(prompts: int, samples: int) -> None:
    values = np.random.default_rng(prompts).uniform(size=(prompts, samples))
    found = mean_estimate(values.ravel().tolist(), np.repeat(np.arange(prompts), samples).tolist())
    expected = stats.ttest_1samp(values.mean(1), 0.0).confidence_interval()
    assert found.value == pytest.approx(values.mean())
    assert found.low is not None and found.high is not None
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=4e-4)


def test_mean_estimate_covers_the_true_mean_where_prompts_differ() -> None:
    """Shared noise of a prompt: an interval that took completions as independent would cover far less than 95 %."""
    random, covered = np.random.default_rng(0), 0
    prompts = np.repeat(np.arange(20), 8)
    for _ in range(400):
        values = 0.1 + random.normal(0, 0.2, 20)[prompts] + random.normal(0, 0.1, 160)
        found = mean_estimate(values.tolist(), prompts.tolist())
        assert found.low is not None and found.high is not None
        covered += found.low <= 0.1 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize("prompts", range(1, MIN_CLUSTERS))
def test_mean_estimate_of_few_prompts_has_no_interval(prompts: int) -> None:
    found = mean_estimate([0.0, 1.0] * prompts, [n // 2 for n in range(2 * prompts)])
    assert (found.value, found.low, found.high) == (0.5, None, None) and found.null_reason


def test_ratio_estimate_covers_the_true_ratio() -> None:
    random, covered = np.random.default_rng(0), 0
    for _ in range(400):
        of = 1.0 + random.normal(0, 0.6, 12)
        found = ratio_estimate((0.5 * of + random.normal(0, 0.3, 12)).tolist(), of.tolist())
        assert found.value is not None
        covered += found.low is None or found.high is None or found.low <= 0.5 <= found.high
    assert 0.92 <= covered / 400 <= 0.98
