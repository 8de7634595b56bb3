"""Pairs of completions that people preferred, and how far criteria order them as people do. Needs ``judging``.

Rows are those of ``values`` [N, C]; a pair is (preferred row, other row) of one prompt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric_analysis import ErrorBound
from rubricsvc.stats import MIN_PAIRS
from rubricsvc.stats.criteria import Groups, mean_estimates
from rubricsvc.stats.intervals import Floats, Ints

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


def error_bounds(values: Floats, pairs: Ints, weights: Sequence[float] | Floats) -> tuple[ErrorBound, ...]:
    """Return RRD's bound of the pairs in the wrong order (arXiv 2602.05125) for three weightings, and the true share.

    ``weights`` [C] are signed. ``best`` are Σ⁻¹μ of these very pairs, with Σ shrunk to its diagonal by a
    hundredth: what no weights can beat, and not an estimate for others. Pairs with a missing value are left
    out; none if fewer than `MIN_PAIRS` remain.
    """
    given = differences(values, pairs)
    given = given[~np.isnan(given).any(1)]
    if len(given) < MIN_PAIRS:
        return ()
    mean, covariance = given.mean(0), np.atleast_2d(np.cov(given, rowvar=False)).astype(float)
    shrunk = (1 - _SHRINKAGE) * covariance + _SHRINKAGE * np.diag(np.diag(covariance))
    current = np.asarray(weights, float)
    best = np.linalg.pinv(shrunk, hermitian=True) @ mean
    several: tuple[tuple[Literal["current", "equal", "best"], Floats], ...] = (
        ("current", current),
        ("equal", np.sign(current)),
        ("best", best),
    )
    return tuple(
        ErrorBound(weights=name, error=error_share(given @ one), bound=_bound(one, mean, covariance))
        for name, one in several
    )


def error_share(margins: Floats) -> float:
    """Return the share of pairs in the wrong order: margins below 0, and half of those that are 0."""
    return float(((margins < -1e-12) + 0.5 * (np.abs(margins) <= 1e-12)).mean())


def _bound(weights: Floats, mean: Floats, covariance: Floats) -> float:
    margin, variance = float(weights @ mean), float(weights @ covariance @ weights)
    if margin <= 0:
        return 1.0
    return float(np.exp(-0.5 * margin**2 / variance)) if variance > 0 else 0.0
