"""The distribution of rewards: mean with interval, deviation and histogram."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import pstdev

from rubricsvc.core.estimate import Estimate, mean_estimate

BINS = 20
"""Bars of a histogram."""


@dataclass(frozen=True)
class Distribution:
    """Rewards of a group of completions.

    Attributes:
        n: Completions with a reward.
        mean: With its interval over prompts.
        counts: Rewards in each of `BINS` bars of equal width; without a width, where all are equal, in the middle one.
    """

    n: int
    mean: Estimate
    deviation: float
    counts: tuple[int, ...]


def distribution(values: Sequence[float], prompts: Sequence[Hashable], low: float, high: float) -> Distribution | None:
    """Return the distribution of rewards, with bars from ``low`` to ``high``; None without any.

    ``prompts`` has the prompt of each reward.
    """
    if not values:
        return None
    counts = [0] * BINS
    for value in values:
        place = (value - low) / (high - low) if high > low else 0.5
        counts[min(max(int(place * BINS), 0), BINS - 1)] += 1
    return Distribution(len(values), mean_estimate(values, prompts), pstdev(values), tuple(counts))


def bounds(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a histogram of rewards from ``low`` to ``high``: 0 and 1 if they lie between."""
    return (0.0, 1.0) if low >= 0.0 and high <= 1.0 else (low, high)
