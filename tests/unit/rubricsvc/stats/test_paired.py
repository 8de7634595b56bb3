"""Rank correlations, against SciPy's and the definition; preference pairs; two rewards beside people's scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rubricsvc.stats.paired import preference_pairs, rank_correlation, tau_within

RANDOM = np.random.default_rng(3)
FIRST = RANDOM.uniform(size=60).round(1).tolist()
SECOND = (np.array(FIRST) + RANDOM.normal(0.05, 0.2, 60)).round(2).tolist()
PROMPTS = [n // 4 for n in range(60)]


def test_rank_correlation_agrees_with_scipy() -> None:
    found = rank_correlation(FIRST, SECOND, PROMPTS)
    assert found.value == pytest.approx(stats.spearmanr(FIRST, SECOND).statistic)
    assert found.low is not None and found.high is not None and found.low < found.value < found.high
    assert rank_correlation([0.5] * 9, FIRST[:9], range(9)).value is None
    assert rank_correlation(FIRST[:4], SECOND[:4], range(4)).value is None


def test_tau_within_ignores_the_order_between_prompts() -> None:
    prompts = list(range(6)) * 2
    low, high = [float(n) for n in range(6)], [n + 0.5 for n in range(6)]
    falling = [-value for value in low]
    found = tau_within(low + high, falling + [value + 0.1 for value in falling], prompts)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
    assert tau_within([0.1, 0.2], [0.1, 0.2], [1, 2]).value is None
    assert tau_within([0.1, 0.2], [0.3, 0.3], [1, 1]).value is None


def test_preference_pairs_are_of_one_person_and_prompt() -> None:
    labels = [(0, "ann", 1.0), (1, "ann", 0.2), (2, "ann", 0.2), (3, "ann", 0.0), (1, "bob", 1.0), (2, "bob", 0.0)]
    assert preference_pairs(labels, np.array([1, 1, 1, 2])).tolist() == [[0, 1], [0, 2], [1, 2]]
