"""Estimates: a number with its interval, and the mean of values that are correlated within prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import atan, cos, fsum, pi, sin, sqrt
from statistics import fmean
from typing import Annotated

from pydantic import Field

_MOST_FREEDOM = 10_000
_HALVINGS = 50
_ROUNDING = 1e-12


def t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    Its error is about 1e-15: far smaller tails are not distinguished from 0.
    """
    angle = atan(t / sqrt(freedom))
    term, total = (cos(angle) if freedom % 2 else 1.0), 0.0
    for k in range(freedom % 2 + 2, freedom + 1, 2):
        total += term
        term *= cos(angle) ** 2 * (k - 1) / k
    within = (angle + sin(angle) * total) * 2 / pi if freedom % 2 else sin(angle) * total
    return max(0.0, (1.0 - within) / 2)


@cache
def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile; above 10,000 degrees of freedom that of 10,000, which is 0.01 % too large."""
    low, high = 1.9, 13.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, min(freedom, _MOST_FREEDOM)) > 0.025 else (low, middle)
    return (low + high) / 2


def p_above_zero(values: Sequence[float]) -> float:
    """Return the one-sided p value of a t test for a mean above 0; 1 where it is not, but for rounding."""
    mean = fmean(values)
    if mean <= _ROUNDING:
        return 1.0
    spread = fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return t_tail(mean / sqrt(spread / len(values)), len(values) - 1) if spread else 0.0


MIN_CLUSTERS = 5
"""Fewer clusters (prompts, or completions of one prompt) than this give no interval."""
NO_INTERVAL = f"an interval needs {MIN_CLUSTERS} prompts or completions, found "


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
        return Estimate(mean, null_reason=f"{NO_INTERVAL}{g}")
    half = t_quantile(g - 1) * sqrt(g / (g - 1) * fsum(one * one for one in sums.values())) / len(values)
    return Estimate(mean, mean - half, mean + half)


def mean_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
