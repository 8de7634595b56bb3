"""Before a run: is its judge better than chance, and what does its reward pull up among samples?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from statistics import fmean, stdev

import numpy as np
from scipy.stats import chi2

from rubricsvc.core.audit import Audit
from rubricsvc.core.estimate import Estimate
from rubricsvc.core.passport import TRAINED, Passport
from rubricsvc.stats.agreement import MIN_LABELS, CriterionAgreement
from rubricsvc.stats.paired import tau_within
from rubricsvc.stats.policy_scores import chosen_mean, over_prompts

CHANCE = 0.5


def accuracy(
    found: CriterionAgreement | None, where: str, audit: Audit | None, passport: Passport | None, scorer: str = TRAINED
) -> tuple[Estimate, str] | None:
    """Return the accuracy of a judge, of which 0.5 is chance, with its interval, and what it is by; the first of these.

    Of labels the share of pairs of completions of a prompt that are ordered as labelled, else the AUROC. Of an audit
    the balanced accuracy on completions that were not attacked (the suites ``plain`` and ``missed``), whose interval
    combines the Wilson intervals of both rates (MOVER; Newcombe, Stat. Med. 17, 1998). Of a passport the AUROC of the
    judge, or of its untrained base, on its main test set.
    """
    for name, what in (("pairwise_accuracy", "pairs of a prompt in the right order"), ("auroc", "AUROC")):
        if found is not None and found.metrics[name].low is not None:
            return found.metrics[name], f"{what}, {found.pairs} labels {where}"
    suites = {suite.name: suite for suite in audit.suites} if audit is not None else {}
    if [suites[name].measure for name in ("plain", "missed") if name in suites] == ["met", "missed"]:
        rates = [suites[name].rate for name in ("plain", "missed")]
        known = [(one.value, one.low, one.high) for one in rates]
        if sum(one.n for one in rates) >= MIN_LABELS and not any(None in one for one in known):
            (p, p_low, p_high), (m, m_low, m_high) = ([float(part or 0.0) for part in one] for one in known)
            value = 1 - (p + m) / 2
            low, high = value - hypot(p_high - p, m_high - m) / 2, value + hypot(p - p_low, m - m_low) / 2
            return Estimate(value, low, high), f"balanced accuracy, {sum(one.n for one in rates)} findings of its audit"
    table = next((one for one in passport.tables if one.whole), None) if passport is not None else None
    row = next((one for one in table.whole if one.scorer == scorer), None) if table is not None else None
    if table is None or row is None or row["auroc"].low is None:
        return None
    figure = Estimate(row["auroc"].value, row["auroc"].low, row["auroc"].high)
    return figure, f"AUROC, {row.n} questions of {table.name!r}"


Values = Sequence[Sequence[float]]
Known = Sequence[Sequence[float | None]]
"""Values of which some are not known."""
PERMUTATIONS = 500


@dataclass(frozen=True, slots=True)
class Preview:
    """What the reward does to samples.

    The rewards of ``with_signal`` of ``groups`` deviate by more than the judge's noise does in 95 % of such groups.
    ``features`` and ``criteria`` have Kendall's tau with the reward within prompts, of those that vary; ``by_chance``
    is what the largest of features exceeds in 5 % of the random orders of rewards. ``reward_gain`` and ``gold_gain``
    are those of the best of ``best_of`` samples by the reward less their mean; gold is None without a gold score.
    """

    groups: int
    with_signal: int
    features: dict[str, Estimate]
    criteria: dict[str, Estimate]
    by_chance: float
    best_of: int
    reward_gain: float
    gold_gain: Estimate | None


def preview(
    rewards: Values, features: Mapping[str, Values], criteria: Mapping[str, Known], gold: Values | None, noise: float
) -> Preview:
    """Return the preview of samples, of which each prompt has two at least; criteria may lack values."""
    sizes = [len(group) for group in rewards]
    noises = [noise * math.sqrt(float(chi2.ppf(0.95, size - 1)) / (size - 1)) for size in sizes]
    gains = []
    for values in (rewards, gold or rewards):
        arrays = [
            (np.asarray(one, float), np.asarray(other, float)) for one, other in zip(rewards, values, strict=True)
        ]
        gains.append([chosen_mean(proxy, found, len(proxy)) - float(found.mean()) for proxy, found in arrays])
    taus: list[dict[str, Estimate]] = []
    for measured in (features, criteria):
        found = {}
        for name, groups in measured.items():
            rows = [
                (reward, value, place)
                for place, pair in enumerate(zip(rewards, groups, strict=True))
                for reward, value in zip(*pair, strict=True)
                if value is not None
            ]
            found[name] = tau_within([one[0] for one in rows], [one[1] for one in rows], [one[2] for one in rows])
        taus.append({name: one for name, one in found.items() if one.value is not None})
    return Preview(
        groups=len(rewards),
        with_signal=sum(stdev(group) > limit for group, limit in zip(rewards, noises, strict=True)),
        features=taus[0],
        criteria=taus[1],
        by_chance=largest_by_chance(rewards, list(features.values())),
        best_of=max(sizes),
        reward_gain=fmean(gains[0]),
        gold_gain=over_prompts(gains[1]) if gold is not None else None,
    )


def largest_by_chance(rewards: Values, features: Sequence[Values], seed: int = 0) -> float:
    """Return what the largest |tau| of features exceeds in 5 % of random orders of the rewards within prompts.

    The test of the largest of several correlations (max-statistic permutation test): of rewards that have nothing to do
    with any of the features, one in 20 has a correlation beyond it, however many features there are.
    """
    if not features:
        return 0.0
    draws = np.random.default_rng(seed)
    net = np.zeros((PERMUTATIONS, len(features)))  # concordant less discordant pairs; those without ties stay the same
    in_rewards, in_features = 0.0, np.zeros(len(features))
    for place, group in enumerate(rewards):
        values = np.array([group, *(feature[place] for feature in features)], float)
        order, *others = np.sign(values[:, :, None] - values[:, None, :])  # which of each two values is larger
        orders = np.array(others)
        in_rewards += float(np.abs(order).sum())
        in_features += np.abs(orders).sum((1, 2))
        at = draws.random((PERMUTATIONS, len(group))).argsort(1)
        net += np.einsum("fij,pij->pf", orders, order[at[:, :, None], at[:, None, :]])
    scale = np.sqrt(in_rewards * in_features)
    taus = np.abs(net) / np.where(scale > 0, scale, np.inf)
    return float(np.quantile(taus.max(1), 0.95))
