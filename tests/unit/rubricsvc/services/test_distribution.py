"""The histogram of rewards."""

from __future__ import annotations

import pytest

from rubricsvc.services.job_results import BINS, distribution


def test_distribution_counts_rewards_in_bars() -> None:
    found = distribution([0.0, 0.04, 0.05, 1.0, 0.999, 0.5], [1, 1, 1, 1, 1, 1], 0.0, 1.0)
    assert found is not None
    assert (found.n, sum(found.counts)) == (6, 6)
    assert (found.counts[0], found.counts[1], found.counts[BINS // 2], found.counts[-1]) == (2, 1, 1, 2)
    assert distribution([], [], 0.0, 1.0) is None


def test_distribution_treats_prompts_as_independent() -> None:
    found = distribution([0.1, 0.9] * 5, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5], 0.0, 1.0)
    assert found is not None and found.mean.low == pytest.approx(0.5)
