"""How far the rankings of paired values agree. Needs the extra ``judging``.

Arrays are [N]: ``first`` and ``second`` are the two values of each thing, ``clusters`` is its prompt. Things of one
prompt are correlated, so that intervals treat whole prompts as independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats import MIN_PAIRS, RESAMPLES
from rubricsvc.stats.intervals import Floats, cluster_draws, with_interval
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
