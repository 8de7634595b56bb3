"""Intervals: Wilson's for rates, and percentiles of a bootstrap that draws whole clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rubricsvc.core.audit import Rate

MIN_CLUSTERS = 5
"""Fewer clusters than this give no interval."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def rate(hits: int, n: int) -> Rate:
    """Return the rate of ``hits`` among ``n`` with its 95 % Wilson interval; without a value if ``n`` is 0."""
    if not n:
        return Rate(n=0, hits=0)
    interval = stats.binomtest(hits, n).proportion_ci(0.95, method="wilson")
    return Rate(n=n, hits=hits, value=hits / n, low=max(interval.low, 0.0), high=min(interval.high, 1.0))


def cluster_draws(clusters: NDArray[Any], resamples: int, seed: int) -> Iterator[Ints]:
    """Yield the row numbers of each bootstrap draw of as many whole clusters as there are.

    Args:
        clusters: [N], the cluster of each row. With fewer than ``MIN_CLUSTERS`` nothing is drawn.
        resamples: The number of draws.
        seed: The seed of the random generator.
    """
    _, cluster_of = np.unique(clusters, return_inverse=True)
    if cluster_of.max(initial=-1) + 1 < MIN_CLUSTERS:
        return
    members = np.split(np.argsort(cluster_of, kind="stable"), np.cumsum(np.bincount(cluster_of))[:-1])
    random = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.concatenate([members[i] for i in random.integers(len(members), size=len(members))])


def percentile_interval(samples: Sequence[float] | Floats) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile of bootstrap samples."""
    low, high = np.quantile(samples, [0.025, 0.975])
    return float(low), float(high)
