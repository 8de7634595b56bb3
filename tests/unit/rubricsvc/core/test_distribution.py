"""Mean, interval and histogram of rewards."""

from __future__ import annotations

import random

import pytest

from rubricsvc.core.distribution import BINS, bounds, distribution, mean_estimate
from rubricsvc.stats.paired import mean_difference


@pytest.mark.parametrize("prompts", [5, 6, 12, 60])
def test_mean_estimate_is_the_cluster_robust_t_interval(prompts: int) -> None:
    """The same as of a paired difference from 0, which takes its quantiles from scipy."""
    random_ = random.Random(prompts)
    clusters = [random_.randrange(prompts) for _ in range(100)] + list(range(prompts))
    values = [random_.random() + cluster / 50 for cluster in clusters]
    own, other = mean_estimate(values, clusters), mean_difference([0.0] * len(values), values, clusters)
    assert (own.value, own.low, own.high) == pytest.approx((other.value, other.low, other.high), rel=3e-3)


def test_mean_estimate_has_no_interval_over_few_clusters() -> None:
    few = mean_estimate([0.0, 1.0, 0.5, 0.5], [1, 2, 3, 4])
    assert (few.value, few.low, few.high) == (0.5, None, None) and few.null_reason


def test_distribution_counts_rewards_in_bars() -> None:
    found = distribution([0.0, 0.04, 0.05, 1.0, 0.999, 0.5], [1, 1, 1, 1, 1, 1], *bounds(0.0, 1.0))
    assert found is not None
    assert (found.n, found.over, sum(found.counts)) == (6, "completions", 6)
    assert (found.counts[0], found.counts[1], found.counts[BINS // 2], found.counts[-1]) == (2, 1, 1, 2)
    assert distribution([], [], 0.0, 1.0) is None


def test_distribution_treats_prompts_as_independent_where_there_are_enough() -> None:
    found = distribution([0.1, 0.9] * 5, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5], 0.0, 1.0)
    assert found is not None and (found.over, found.mean.low) == ("prompts", pytest.approx(0.5))


def test_bounds_of_a_histogram() -> None:
    assert bounds(0.2, 0.9) == (0.0, 1.0)
    assert bounds(-0.5, 0.9) == (-0.5, 0.9)
    equal = distribution([3.0, 3.0], [1, 2], *bounds(3.0, 3.0))
    assert equal is not None and equal.counts[BINS // 2] == 2
