"""Paired differences and rank correlations, against SciPy's and against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats.paired import kendall, mean_difference, rank_correlation, spearman, tau_within

RANDOM = np.random.default_rng(3)
FIRST = RANDOM.uniform(size=60).round(1).tolist()
SECOND = (np.array(FIRST) + RANDOM.normal(0.05, 0.2, 60)).round(2).tolist()
PROMPTS = [n // 4 for n in range(60)]


def test_mean_difference_of_one_completion_a_prompt_is_scipys_paired_t_interval() -> None:
    found = mean_difference(FIRST, SECOND, range(60))
    paired = stats.ttest_rel(SECOND, FIRST).confidence_interval()
    assert found.value == pytest.approx(np.mean(np.subtract(SECOND, FIRST)))
    assert (found.low, found.high) == (pytest.approx(paired.low), pytest.approx(paired.high))


def test_mean_difference_of_equal_prompts_is_scipys_t_interval_of_their_means() -> None:
    found = mean_difference(FIRST, SECOND, PROMPTS)
    means = np.subtract(SECOND, FIRST).reshape(15, 4).mean(1)
    expected = stats.ttest_1samp(means, 0.0).confidence_interval()
    assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_mean_difference_covers_the_true_one_where_prompts_differ() -> None:
    """Shared noise of a prompt: an interval that took completions as independent would cover far less than 95 %."""
    random, covered = np.random.default_rng(0), 0
    clusters = np.repeat(np.arange(20), 8)
    for _ in range(400):
        shift = 0.1 + random.normal(0, 0.2, 20)[clusters] + random.normal(0, 0.1, 160)
        found = mean_difference(np.zeros(160).tolist(), shift.tolist(), clusters.tolist())
        assert found.low is not None and found.high is not None
        covered += found.low <= 0.1 <= found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_mean_difference_of_the_same_values_is_zero() -> None:
    assert mean_difference(FIRST, FIRST, PROMPTS) == Estimate(0.0, 0.0, 0.0)


def test_mean_difference_of_one_prompt_has_no_interval() -> None:
    found = mean_difference([0.1, 0.2], [0.2, 0.4], [7, 7])
    assert found.value == pytest.approx(0.15) and found.low is None and found.null_reason
    assert mean_difference([], [], []).value is None


def test_rank_correlation_agrees_with_scipy() -> None:
    tau, rho = (rank_correlation(measure, FIRST, SECOND, PROMPTS) for measure in (kendall, spearman))
    assert tau.value == pytest.approx(stats.kendalltau(FIRST, SECOND).statistic)
    assert rho.value == pytest.approx(stats.spearmanr(FIRST, SECOND).statistic)
    for found in (tau, rho):
        assert found.low is not None and found.value is not None and found.high is not None
        assert found.low < found.value < found.high


def test_rank_correlation_of_constant_or_few_values_is_null() -> None:
    assert rank_correlation(kendall, [0.5] * 9, FIRST[:9], range(9)).value is None
    assert rank_correlation(kendall, FIRST[:4], SECOND[:4], range(4)).value is None


def test_tau_within_ignores_the_order_between_prompts() -> None:
    prompts = list(range(6)) * 2
    low, high = [float(n) for n in range(6)], [n + 0.5 for n in range(6)]
    falling = [-value for value in low]
    found = tau_within(low + high, falling + [value + 0.1 for value in falling], prompts)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    assert tau_within([0.1, 0.2], [0.1, 0.2], [1, 2]).value is None
    assert tau_within([0.1, 0.2], [0.3, 0.3], [1, 1]).value is None
