"""Student's t against SciPy's."""

from __future__ import annotations

import pytest
from scipy import stats

from rubricsvc.core.student import t_quantile, t_tail


def test_t_tail_and_t_quantile_equal_those_of_scipy() -> None:
    for freedom in (1, 2, 3, 4, 7, 24, 25, 300):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-11)
        for t in (-3.0, 0.0, 0.5, 2.0, 5.0):
            assert t_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), abs=1e-13, rel=1e-9)


def test_t_quantile_of_many_degrees_is_nearly_the_normal_one() -> None:
    assert t_quantile(10**9) == pytest.approx(stats.norm.ppf(0.975), rel=2e-4)
