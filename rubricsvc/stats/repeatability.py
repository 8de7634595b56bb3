"""The standard deviation of repeated measurements, pooled over questions. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rubricsvc.core.repeatability import Deviation
from rubricsvc.stats.intervals import cluster_draws, percentile_interval

RESAMPLES = 1000


def pooled_deviation(
    values: Sequence[Sequence[float]], clusters: Sequence[int], *, resamples: int = RESAMPLES, seed: int = 0
) -> Deviation:
    """Return the pooled standard deviation within questions: √(Σ (x - mean of its question)² / Σ (repeats - 1)).

    Args:
        values: The values of each question, one for each repeat that was scored. Questions with fewer than two are
            left out.
        clusters: The completion of each question; the bootstrap draws whole completions.
        resamples: The number of bootstrap draws.
        seed: The seed of the bootstrap.
    """
    repeated = [(np.asarray(x, float), cluster) for x, cluster in zip(values, clusters, strict=True) if len(x) > 1]
    if not repeated:
        return Deviation(n=0)
    squares = np.array([np.square(x - x.mean()).sum() for x, _ in repeated])
    freedom = np.array([len(x) - 1 for x, _ in repeated])
    draws = cluster_draws(np.array([cluster for _, cluster in repeated]), resamples, seed)
    samples = [float(np.sqrt(squares[rows].sum() / freedom[rows].sum())) for rows in draws]
    low, high = percentile_interval(samples) if samples else (None, None)
    return Deviation(n=len(repeated), value=float(np.sqrt(squares.sum() / freedom.sum())), low=low, high=high)
