"""Scores of a policy on held-out prompts: means, best and worst of k samples, and differences to another policy.

Prompts are independent, the samples of one are not: each prompt gives one value, and intervals are t intervals over
prompts (`mean_estimate`).
"""

from collections.abc import Hashable, Mapping, Sequence
from math import sqrt
from statistics import fmean

import numpy as np

from rubricsvc.core.estimate import MIN_CLUSTERS, Estimate
from rubricsvc.stats.estimates import mean_estimate, over_prompts, t_quantile

Score = float | None
"""A number, or None where a completion has no score."""

PromptValues = Mapping[str, Sequence[Score] | None]
"""Values of each prompt, None where there is none: the ``mean`` of its samples, and its ``greedy`` completion's."""


def prompt_means(samples: Sequence[Sequence[Score]]) -> list[Score]:
    """Return the mean of each prompt's samples [P][k], over those that are scored."""
    known = [[one for one in scores if one is not None] for scores in samples]
    return [fmean(scores) if scores else None for scores in known]


def policy_scores(
    samples: Sequence[Sequence[Score]], greedy: Sequence[Score] | None = None, before: PromptValues | None = None
) -> dict[str, Estimate | float]:
    """Return the estimates of a policy from the scores of each prompt's k samples [P][k] and greedy completions [P].

    They are over prompts, with 95 % intervals: ``max_at_k`` and ``worst_of_k`` over those whose k samples are all
    scored, the differences to ``before``, the values of another policy, paired by prompt.
    """
    means, before = prompt_means(samples), before or {}
    whole = [[one for one in scores if one is not None] for scores in samples if None not in scores]
    every = [*(score for scores in samples for score in scores), *(greedy or ())]
    mean_before, greedy_before = before.get("mean"), before.get("greedy")
    found = {
        "mean": over_prompts(means),
        "max_at_k": over_prompts([max(scores) for scores in whole]),
        "worst_of_k": over_prompts([min(scores) for scores in whole]),
        "greedy": over_prompts(greedy) if greedy else None,
        "mean_difference": over_prompts(means, mean_before) if mean_before else None,
        "greedy_difference": over_prompts(greedy, greedy_before) if greedy and greedy_before else None,
        "unscored_fraction": sum(score is None for score in every) / len(every),
    }
    return {name: one for name, one in found.items() if one is not None}


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
