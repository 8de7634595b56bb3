"""Scores of a policy on held-out prompts: means, best and worst of k samples, and differences to another policy.

Prompts are independent, the samples of one are not: each prompt gives one value, and intervals are t intervals over
prompts (`mean_estimate`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

import numpy as np

from rubricsvc.core.estimate import MIN_CLUSTERS, Estimate
from rubricsvc.stats.estimates import mean_estimate, over_prompts, t_quantile

Score = float | None
"""A number, or None where a completion has no score."""


@dataclass(frozen=True, slots=True)
class PromptValues:
    """One value for each prompt, None where there is none: the mean of its samples, and its greedy completion's."""

    mean: Sequence[Score]
    greedy: Sequence[Score] | None = None


@dataclass(frozen=True, slots=True)
class PolicyScores:
    """Estimates over prompts, with 95 % intervals.

    ``max_at_k`` and ``worst_of_k`` are of the prompts whose k samples are all scored. The differences are paired by
    prompt; None without another policy. ``greedy`` is None without greedy completions.
    """

    mean: Estimate
    max_at_k: Estimate
    worst_of_k: Estimate
    greedy: Estimate | None
    mean_difference: Estimate | None
    greedy_difference: Estimate | None
    unscored_fraction: float


def prompt_values(samples: Sequence[Sequence[Score]], greedy: Sequence[Score] | None) -> PromptValues:
    """Return the values of each prompt from those of its samples [P][k]; a mean is over those that are scored."""
    known = [[one for one in scores if one is not None] for scores in samples]
    return PromptValues([fmean(scores) if scores else None for scores in known], greedy)


def policy_scores(
    samples: Sequence[Sequence[Score]], greedy: Sequence[Score] | None = None, before: PromptValues | None = None
) -> PolicyScores:
    """Return the estimates of a policy from the scores of each prompt's k samples [P][k] and greedy completions [P].

    ``before`` has the values of the policy to compare with, of the same prompts.
    """
    values = prompt_values(samples, greedy)
    whole = [[one for one in scores if one is not None] for scores in samples if None not in scores]
    every = [*(score for scores in samples for score in scores), *(greedy or ())]
    compared = before.greedy if before is not None else None
    return PolicyScores(
        mean=over_prompts(values.mean),
        max_at_k=over_prompts([max(scores) for scores in whole]),
        worst_of_k=over_prompts([min(scores) for scores in whole]),
        greedy=over_prompts(greedy) if greedy is not None else None,
        mean_difference=over_prompts(values.mean, before.mean) if before is not None else None,
        greedy_difference=over_prompts(greedy, compared) if greedy is not None and compared is not None else None,
        unscored_fraction=sum(score is None for score in every) / len(every),
    )


def over_prompts_and_seeds(values: Sequence[float], prompts: Sequence[Hashable], seeds: Sequence[Hashable]) -> Estimate:
    """Return the mean with a 95 % interval for other prompts and other seeds; of one seed, for other prompts alone.

    The variance is clustered both ways, V_prompt + V_seed - V_both (Cameron, Gelbach and Miller, JBES 29, 2011), and at
    least the larger of the first two. With few seeds the t interval, of one degree of freedom less than there are seeds
    or prompts, is wide: it has to be.
    """
    if len(set(seeds)) < 2 or len(set(prompts)) < MIN_CLUSTERS:
        return mean_estimate(values, prompts)
    mean = float(np.mean(values))
    residuals, variances = np.asarray(values, float) - mean, list[float]()
    for clusters in (prompts, seeds, list(zip(prompts, seeds, strict=True))):  # CR1, as of `mean_estimate`
        names: dict[Hashable, int] = {}
        sums = np.bincount([names.setdefault(cluster, len(names)) for cluster in clusters], residuals)
        variances.append(float(len(names) / (len(names) - 1) * (sums**2).sum() / len(residuals) ** 2))
    by_prompt, by_seed, both = variances
    freedom = min(len(set(prompts)), len(set(seeds))) - 1
    half = t_quantile(freedom) * sqrt(max(by_prompt + by_seed - both, by_prompt, by_seed))
    return Estimate(mean, mean - half, mean + half)
