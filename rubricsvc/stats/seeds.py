"""Means of values that are correlated within prompts and within seeds of training. Needs ``judging``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import sqrt

import numpy as np

from rubricsvc.core.estimate import MIN_CLUSTERS, Estimate, mean_estimate, no_interval
from rubricsvc.core.student import t_quantile
from rubricsvc.stats.intervals import Floats


def over_prompts_and_seeds(values: Sequence[float], prompts: Sequence[Hashable], seeds: Sequence[Hashable]) -> Estimate:
    """Return the mean with a 95 % interval for other prompts and other seeds; of one seed, for other prompts alone.

    The variance is clustered both ways, V_prompt + V_seed - V_both (Cameron, Gelbach and Miller, JBES 29, 2011), and at
    least the larger of the first two. With few seeds the t interval, of one degree of freedom less than there are seeds
    or prompts, is wide: it has to be.
    """
    if len(set(seeds)) < 2 or not values:
        return mean_estimate(values, prompts)
    if len(set(prompts)) < MIN_CLUSTERS:
        return Estimate(float(np.mean(values)), null_reason=no_interval(len(set(prompts))))
    mean = float(np.mean(values))
    residuals = np.asarray(values, float) - mean
    by_prompt, by_seed = (_variance(residuals, each) for each in (prompts, seeds))
    both = _variance(residuals, list(zip(prompts, seeds, strict=True)))
    freedom = min(len(set(prompts)), len(set(seeds))) - 1
    half = t_quantile(freedom) * sqrt(max(by_prompt + by_seed - both, by_prompt, by_seed))
    return Estimate(mean, mean - half, mean + half)


def _variance(residuals: Floats, clusters: Sequence[Hashable]) -> float:
    """Return the variance of the mean of values with these residuals, by clusters (CR1)."""
    names = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    sums = np.bincount([names[cluster] for cluster in clusters], residuals, len(names))
    return float(len(names) / (len(names) - 1) * (sums**2).sum() / len(residuals) ** 2)
