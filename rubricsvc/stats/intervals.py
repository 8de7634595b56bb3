"""Intervals: Wilson's for rates, and percentiles of a bootstrap that draws whole clusters. Needs ``judging``."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from rubricsvc.core.audit import Rate
from rubricsvc.core.estimate import MIN_CLUSTERS, Estimate
from rubricsvc.stats import RESAMPLES
from rubricsvc.stats.estimates import NO_INTERVAL

ENDS = (0.025, 0.975)
MIN_DRAWS = 20  # with fewer draws that allow an estimate it has no interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share of ``n``, which need not be whole."""
    z = float(ndtri(0.975))
    middle, half = share + z * z / (2 * n), z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (float((middle + sign * half) / (1 + z * z / n)) for sign in (-1, 1))
    return max(low, 0.0), min(high, 1.0)


def rate(hits: int, n: int) -> Rate:
    """Return the rate of ``hits`` among ``n`` with its 95 % Wilson interval; without a value if ``n`` is 0."""
    low, high = wilson(hits / n, n) if n else (None, None)
    return Rate(n=n, hits=hits, value=hits / n if n else None, low=low, high=high)


def cluster_draws(clusters: NDArray[Any], resamples: int, seed: int) -> Iterator[Ints]:
    """Yield the row numbers of each bootstrap draw of as many whole clusters as there are.

    ``clusters`` [N] is the cluster of each row. With fewer than ``MIN_CLUSTERS`` nothing is drawn.
    """
    _, cluster_of = np.unique(clusters, return_inverse=True)
    if cluster_of.max(initial=-1) + 1 < MIN_CLUSTERS:
        return
    members = np.split(np.argsort(cluster_of, kind="stable"), np.cumsum(np.bincount(cluster_of))[:-1])
    random = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.concatenate([members[i] for i in random.integers(len(members), size=len(members))])


def bootstrap(
    measure: Callable[[Ints], Mapping[str, float]], clusters: NDArray[Any], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Estimate]:
    """Return estimates by name, with the percentile intervals of a bootstrap that draws whole ``clusters`` [N].

    ``measure`` returns the values by name of some rows (numbers, each as often as it was drawn), without those that
    these rows do not allow.
    """
    samples: dict[str, list[float]] = defaultdict(list)
    for rows in cluster_draws(clusters, resamples, seed):
        for name, value in measure(rows).items():
            samples[name].append(value)
    size, found = len(np.unique(clusters)), dict[str, Estimate]()
    for name, value in measure(np.arange(len(clusters))).items():
        if len(samples[name]) >= MIN_DRAWS:
            found[name] = Estimate(value, *np.quantile(samples[name], ENDS).tolist())
            continue
        drawn = f"{len(samples[name])} of {resamples} draws from {size} prompts have an estimate"
        reason = f"{drawn}; an interval needs {MIN_DRAWS}" if size >= MIN_CLUSTERS else f"{NO_INTERVAL}{size}"
        found[name] = Estimate(value, null_reason=reason)
    return found
