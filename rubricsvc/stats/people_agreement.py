"""How far two weightings of the same completions agree with people, and the paired difference. Needs ``judging``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats import MIN_PAIRS, RESAMPLES
from rubricsvc.stats.intervals import Floats, Ints, cluster_draws, with_interval
from rubricsvc.stats.paired import kendall, spearman
from rubricsvc.stats.preferences import error_share, preference_pairs


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
