"""The distribution of rewards: mean with interval, deviation and histogram."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import fmean, pstdev
from typing import Literal

from rubricsvc.core.estimate import Estimate

BINS = 20
"""Bars of a histogram."""
MIN_CLUSTERS = 5
"""Fewer clusters than this give no interval."""


@dataclass(frozen=True)
class Distribution:
    """Rewards of a group of completions.

    Attributes:
        n: Completions with a reward.
        over: What the interval of the mean treats as independent: prompts, or completions where there are fewer than
            `MIN_CLUSTERS` prompts.
        counts: Rewards in each of `BINS` bars of equal width; without a width, where all are equal, in the middle one.
    """

    n: int
    mean: Estimate
    deviation: float
    over: Literal["prompts", "completions"]
    counts: tuple[int, ...]


def distribution(values: Sequence[float], prompts: Sequence[Hashable], low: float, high: float) -> Distribution | None:
    """Return the distribution of rewards, with bars from ``low`` to ``high``; None without any.

    ``prompts`` has the prompt of each reward.
    """
    if not values:
        return None
    by_prompt = len(set(prompts)) >= MIN_CLUSTERS
    counts = [0] * BINS
    for value in values:
        place = (value - low) / (high - low) if high > low else 0.5
        counts[min(max(int(place * BINS), 0), BINS - 1)] += 1
    mean = mean_estimate(values, prompts if by_prompt else range(len(values)))
    return Distribution(len(values), mean, pstdev(values), "prompts" if by_prompt else "completions", tuple(counts))


def mean_estimate(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate:
    """Return the mean with its cluster-robust t interval (CR1, as `rubricsvc.stats.paired.mean_difference`)."""
    mean = fmean(values)
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    if len(sums) < MIN_CLUSTERS:
        return Estimate(mean, null_reason=f"an interval needs {MIN_CLUSTERS} completions")
    error = sqrt(len(sums) / (len(sums) - 1) * sum(one * one for one in sums.values())) / len(values)
    half = _t_quantile(len(sums) - 1) * error
    return Estimate(mean, mean - half, mean + half)


def bounds(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a histogram of rewards from ``low`` to ``high``: 0 and 1 if they lie between."""
    return (0.0, 1.0) if low >= 0.0 and high <= 1.0 else (low, high)


def _t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t, within 0.3 % from 4 degrees on (Abramowitz and Stegun, 26.7.5)."""
    z = 1.959964
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + fsum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
