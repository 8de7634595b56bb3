"""Wilson intervals, bootstrap draws and pooled deviations."""

from __future__ import annotations

import numpy as np
import pytest

from rubricsvc.core.audit import Rate
from rubricsvc.stats.intervals import cluster_draws, rate


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
        assert counts[0] == counts[2] and counts[5] == counts[6]
        assert counts[[0, 1, 3, 4, 5]].sum() == 5
