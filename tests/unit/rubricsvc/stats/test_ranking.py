"""Ranks, and Kendall's tau against SciPy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from rubricsvc.stats.ranking import concordance, tau_b


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_kendall_tau_agrees_with_scipy(pairs: list[tuple[int, int]]) -> None:
    expected = kendalltau(*zip(*pairs, strict=True)).statistic
    tau = tau_b([concordance([(float(a), float(b)) for a, b in pairs])])
    assert math.isnan(expected) if tau is None else tau == pytest.approx(expected)


def test_kendall_tau_compares_within_groups_only() -> None:
    assert tau_b(map(concordance, [[(1.0, 5.0), (2.0, 6.0)], [(9.0, 1.0), (8.0, 0.0)]])) == 1.0
