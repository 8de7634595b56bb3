"""Intervals, rank correlations (against SciPy's), preference pairs; two rewards and people's scores."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from rubricsvc.core.audit import Rate
from rubricsvc.stats.intervals import cluster_draws, rate
from rubricsvc.stats.paired import preference_pairs, tau_within
from rubricsvc.stats.ranking import concordance, tau_b


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


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_kendall_tau_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    expected = kendalltau(*zip(*pairs, strict=True)).statistic
    tau = tau_b([concordance([(float(a), float(b)) for a, b in pairs])])
    assert math.isnan(expected) if tau is None else tau == pytest.approx(expected)


def test_kendall_tau_compares_within_groups_only() -> None:
    assert tau_b(map(concordance, [[(1.0, 5.0), (2.0, 6.0)], [(9.0, 1.0), (8.0, 0.0)]])) == 1.0


def test_rate_has_the_published_wilson_interval() -> None:
    """Newcombe (1998), table I: 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611."""
    some, none = rate(81, 263), rate(0, 20)
    assert (some.low, some.high) == (pytest.approx(0.2553, abs=1e-4), pytest.approx(0.3662, abs=1e-4))
    assert (none.low, none.high) == (0.0, pytest.approx(0.1611, abs=1e-4))
    assert rate(0, 0) == Rate(n=0, hits=0)


def test_cluster_draws_take_whole_clusters() -> None:
    clusters = np.array([3, 1, 3, 2, 5, 4, 4])
    for rows in cluster_draws(clusters, 20, seed=1):
        counts = np.bincount(rows, minlength=7)
        assert counts[0] == counts[2] and counts[5] == counts[6] and counts[[0, 1, 3, 4, 5]].sum() == 5
