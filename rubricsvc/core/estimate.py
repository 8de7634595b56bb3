"""Estimates: a number with its interval, and the mean of values that are correlated within prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import NormalDist, fmean
from typing import Annotated

from pydantic import Field

MIN_CLUSTERS = 5
"""Fewer clusters (prompts) than this give no interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval. Without a value or an interval ``null_reason`` says why."""

    value: Annotated[float | None, Field(description="The number; null where it cannot be estimated.")]
    low: Annotated[float | None, Field(description="Lower end of the 95 % interval.")] = None
    high: Annotated[float | None, Field(description="Upper end of the interval.")] = None
    null_reason: Annotated[str | None, Field(description="Why there is no number or no interval.")] = None


def mean_estimate(values: Sequence[float], prompts: Sequence[Hashable]) -> Estimate:
    """Return the mean with its cluster-robust t interval over prompts; ``prompts`` has the prompt of each value.

    The variance is G/(G-1) · Σ_g (Σ_{i in g} (x_i - mean))² / N² over G prompts, with G-1 degrees of freedom (CR1).
    With one value a prompt this is the t interval.
    """
    if not values:
        return Estimate(None, null_reason="no values")
    mean = fmean(values)
    sums: defaultdict[Hashable, float] = defaultdict(float)
    for value, prompt in zip(values, prompts, strict=True):
        sums[prompt] += value - mean
    if (g := len(sums)) < MIN_CLUSTERS:
        return Estimate(mean, null_reason=no_interval(g))
    half = _t_quantile(g - 1) * sqrt(g / (g - 1) * fsum(one * one for one in sums.values())) / len(values)
    return Estimate(mean, mean - half, mean + half)


def no_interval(clusters: int) -> str:
    """Return the reason why an estimate over so few prompts (or completions of one prompt) has no interval."""
    return f"an interval needs {MIN_CLUSTERS} prompts or completions, found {clusters}"


def _t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t, within 0.04 % from 4 degrees on (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(0.975)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + fsum(term / float(freedom) ** power for power, term in enumerate(terms, 1))
