"""The mean of values that are correlated within prompts, with its interval, in the standard library."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import cache
from math import atan, cos, fsum, pi, sin, sqrt
from statistics import fmean
from typing import TypeVar

from rubricsvc.core.estimate import MIN_CLUSTERS, Estimate

Cluster = TypeVar("Cluster", bound=Hashable)
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


NO_INTERVAL = f"an interval needs {MIN_CLUSTERS} prompts or completions; number of those with a value: "


def independent(prompts: Sequence[Cluster], completions: Sequence[Cluster]) -> Sequence[Cluster]:
    """Return what intervals treat as independent: the prompts, or the completions where all have one prompt."""
    return prompts if len(set(prompts)) > 1 else completions


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


def over_prompts(values: Sequence[float | None], before: Sequence[float | None] | None = None) -> Estimate:
    """Return the mean of one value for each prompt, less that ``before``, with its t interval.

    Prompts without the values are left out.
    """
    pairs = zip(values, before if before is not None else [0.0] * len(values), strict=True)
    known = [a - b for a, b in pairs if a is not None and b is not None]
    return mean_estimate(known, range(len(known)))
