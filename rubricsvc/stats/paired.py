"""How far the rankings of paired values agree. Needs the extra ``judging``.

Arrays are [N]: ``first`` and ``second`` are the two values of each thing, ``clusters`` is its prompt. Things of one
prompt are correlated, so that intervals treat whole prompts as independent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats import MIN_PAIRS, RESAMPLES
from rubricsvc.stats.criteria import Groups, mean_estimates
from rubricsvc.stats.intervals import Floats, Ints, cluster_draws, with_interval
from rubricsvc.stats.ranking import concordance, tau_b

Measure = Callable[[Floats, Floats], float]


def kendall(first: Floats, second: Floats) -> float:
    """Return Kendall's tau-b over all pairs of things."""
    return float(stats.kendalltau(first, second, method="asymptotic").statistic)


def spearman(first: Floats, second: Floats) -> float:
    """Return Spearman's rank correlation."""
    return float(stats.spearmanr(first, second).statistic)


def rank_correlation(
    measure: Measure, first: Sequence[float], second: Sequence[float], clusters: Sequence[int]
) -> Estimate:
    """Return `kendall` or `spearman` over all things, with a bootstrap interval that draws whole prompts."""
    a, b, prompts = np.asarray(first, float), np.asarray(second, float), np.asarray(clusters)
    if len(a) < MIN_PAIRS:
        return Estimate(None, null_reason=f"{len(a)} paired; a rank correlation needs {MIN_PAIRS}")
    if not _vary(a, b):
        return Estimate(None, null_reason="all values of one side are the same")
    draws = ((a[rows], b[rows]) for rows in cluster_draws(prompts, RESAMPLES, seed=0))
    samples = [measure(*drawn) for drawn in draws if _vary(*drawn)]
    return with_interval(measure(a, b), samples, len(np.unique(prompts)), RESAMPLES)


def _vary(*values: NDArray[Any]) -> bool:
    return all(np.ptp(side) > 0 for side in values)


def tau_within(first: Sequence[float], second: Sequence[float], clusters: Sequence[int]) -> Estimate:
    """Return Kendall's tau-b over the pairs of things of one prompt, with a bootstrap interval over prompts."""
    groups: dict[int, list[tuple[float, float]]] = {}
    for a, b, cluster in zip(first, second, clusters, strict=True):
        groups.setdefault(cluster, []).append((a, b))
    counts = np.array([concordance(group) for group in groups.values() if len(group) > 1], np.int64).reshape(-1, 3)
    if not len(counts):
        return Estimate(None, null_reason="no prompt has two")
    value = tau_b(*counts.sum(0).tolist())
    if value is None:
        return Estimate(None, null_reason="one side has ties only within each prompt")
    draws = (tau_b(*counts[rows].sum(0).tolist()) for rows in cluster_draws(np.arange(len(counts)), RESAMPLES, seed=0))
    return with_interval(value, [tau for tau in draws if tau is not None], len(counts), RESAMPLES)


MOST_PAIRS = 100
"""Pairs of one person on one prompt; of more, as many are drawn."""
_SHRINKAGE = 0.01


def preference_pairs(labels: Iterable[tuple[int, str, float]], prompts: NDArray[Any], *, seed: int = 0) -> Ints:
    """Return pairs [P, 2] from overall scores, each (row, person, score).

    A pair are two completions of one prompt to which the same person gave different scores.
    """
    by_person: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
    for row, person, score in labels:
        by_person[int(prompts[row]), person].append((row, score))
    random, found = np.random.default_rng(seed), []
    for scored in by_person.values():
        pairs = [(a, b) if x > y else (b, a) for (a, x), (b, y) in combinations(scored, 2) if x != y]
        if len(pairs) > MOST_PAIRS:
            pairs = [pairs[place] for place in sorted(random.choice(len(pairs), MOST_PAIRS, replace=False).tolist())]
        found += pairs
    return np.array(found, np.int64).reshape(-1, 2)


def differences(values: Floats, pairs: Ints) -> Floats:
    """Return the values of the preferred completions less those of the others [P, C]."""
    return np.asarray(values[pairs[:, 0]] - values[pairs[:, 1]], float)


def edges(values: Floats, pairs: Ints, prompts: NDArray[Any]) -> list[Estimate]:
    """Return the mean difference of each criterion with its interval over prompts; above 0, people prefer it met."""
    if not len(pairs):
        return [Estimate(None, null_reason="no preferences")] * values.shape[1]
    return mean_estimates(differences(values, pairs), Groups(prompts[pairs[:, 0]]))


def error_share(margins: Floats) -> float:
    """Return the share of pairs in the wrong order: margins below 0, and half of those that are 0."""
    return float(((margins < -1e-12) + 0.5 * (np.abs(margins) <= 1e-12)).mean())


@dataclass(frozen=True, slots=True)
class PairedMetric:
    """A metric of the old and the new rewards, and new less old with its paired interval over prompts."""

    name: str
    n: int
    old: Estimate
    new: Estimate
    difference: Estimate


def people_agreement(
    old: Sequence[float],
    new: Sequence[float],
    prompts: Sequence[int],
    labels: Sequence[tuple[int, str, float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[PairedMetric]:
    """Return the agreement of two rewards [N] with people's overall scores, ``labels`` as (row, person, score).

    ``pearson``, ``spearman`` and ``kendall`` are over the scores, ``preference_accuracy`` over the pairs of completions
    of one prompt to which one person gave different scores; equal rewards count half. Where all completions have one
    prompt, intervals draw completions.
    """
    rewards, of = np.column_stack([old, new]).astype(float), np.asarray(prompts)
    clusters = of if len(of) and np.ptp(of) > 0 else np.arange(len(of))
    rows, scores = np.array([row for row, _, _ in labels], np.int64), np.array([score for _, _, score in labels])
    pairs = preference_pairs(labels, of, seed=seed)
    margins = rewards[pairs[:, 0]] - rewards[pairs[:, 1]]
    correlations = {"pearson": _pearson, "spearman": spearman, "kendall": kendall}

    def of_scores(measure: Callable[[Floats, Floats], float]) -> Callable[[Ints, int], float | None]:
        def value(drawn: Ints, side: int) -> float | None:
            first, second = rewards[rows[drawn], side], scores[drawn]
            return measure(first, second) if np.ptp(first) > 0 and np.ptp(second) > 0 else None

        return value

    found = [
        _paired(name, clusters[rows], of_scores(measure), resamples, seed) for name, measure in correlations.items()
    ]
    accuracy = _paired(
        "preference_accuracy",
        clusters[pairs[:, 0]],
        lambda drawn, side: 1 - error_share(margins[drawn, side]),
        resamples,
        seed,
    )
    return [*found, accuracy]


def _pearson(first: Floats, second: Floats) -> float:
    return float(np.corrcoef(first, second)[0, 1])


def _paired(
    name: str, clusters: NDArray[Any], value: Callable[[Ints, int], float | None], resamples: int, seed: int
) -> PairedMetric:
    """Return a metric of both sides, each draw of clusters measured on both."""
    size = len(clusters)
    if size < MIN_PAIRS:
        none = Estimate(None, null_reason=f"{size} with people's scores; an estimate needs {MIN_PAIRS}")
        return PairedMetric(name, size, none, none, none)
    draws = [(value(rows, 0), value(rows, 1)) for rows in cluster_draws(clusters, resamples, seed)]
    prompts = len(np.unique(clusters))

    def estimate(of: Callable[[float | None, float | None], float | None]) -> Estimate:
        point = of(value(np.arange(size), 0), value(np.arange(size), 1))
        if point is None:
            return Estimate(None, null_reason="all rewards or all scores are the same")
        samples = [one for one in (of(*draw) for draw in draws) if one is not None]
        return with_interval(point, samples, prompts, resamples)

    return PairedMetric(
        name=name,
        n=size,
        old=estimate(lambda a, _: a),
        new=estimate(lambda _, b: b),
        difference=estimate(lambda a, b: None if a is None or b is None else b - a),
    )
