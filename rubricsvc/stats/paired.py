"""How far paired values agree: two rewards with each other, or with people. Needs the extra ``judging``.

Arrays are [N]: ``first`` and ``second`` are the two values of each thing, ``clusters`` is its prompt. Things of one
prompt are correlated, so that intervals treat whole prompts as independent.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats.intervals import Floats, Ints, bootstrap
from rubricsvc.stats.ranking import concordance, tau_b

Correlation = Literal["pearson", "spearman"]


def correlation(name: Correlation, first: Floats, second: Floats) -> float:
    """Return Pearson's or Spearman's correlation; NaN where the values of one side are all the same."""
    if not len(first) or np.ptp(first) <= _SAME or np.ptp(second) <= _SAME:
        return float("nan")
    return float(stats.spearmanr(first, second).statistic if name == "spearman" else np.corrcoef(first, second)[0, 1])


def known(**values: float | None) -> dict[str, float]:
    """Return the values that are neither None nor NaN, by name."""
    return {name: value for name, value in values.items() if value is not None and not np.isnan(value)}


def tau_within(first: Sequence[float], second: Sequence[float], clusters: Sequence[int]) -> Estimate:
    """Return Kendall's tau-b over the pairs of things of one prompt, with a bootstrap interval over prompts."""
    groups: dict[int, list[tuple[float, float]]] = {}
    for a, b, cluster in zip(first, second, clusters, strict=True):
        groups.setdefault(cluster, []).append((a, b))
    pairs = [concordance(group) for group in groups.values() if len(group) > 1]
    counts = np.array(pairs, np.int64).reshape(-1, 3)
    if not len(counts):
        return Estimate(None, null_reason="no prompt has two")
    found = bootstrap(lambda rows: known(value=tau_b(counts[rows].tolist())), np.arange(len(counts)))
    return found.get("value", Estimate(None, null_reason="one side has ties only within each prompt"))


MOST_PAIRS = 100  # pairs of one person on one prompt; of more, as many are drawn
_SAME = 1e-12


def preference_pairs(labels: Iterable[tuple[int, str, float]], prompts: NDArray[Any]) -> Ints:
    """Return pairs [P, 2] from overall scores, each (row, person, score).

    A pair are two completions of one prompt to which the same person gave different scores.
    """
    by_person: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
    for row, person, score in labels:
        by_person[int(prompts[row]), person].append((row, score))
    random, found = np.random.default_rng(0), []
    for scored in by_person.values():
        pairs = [(a, b) if x > y else (b, a) for (a, x), (b, y) in combinations(scored, 2) if x != y]
        if len(pairs) > MOST_PAIRS:
            pairs = [pairs[place] for place in sorted(random.choice(len(pairs), MOST_PAIRS, replace=False).tolist())]
        found += pairs
    return np.array(found, np.int64).reshape(-1, 2)


def differences(values: Floats, pairs: Ints) -> Floats:
    """Return the values [N] or [N, C] of the preferred completions less those of the others [P] or [P, C]."""
    return np.asarray(values[pairs[:, 0]] - values[pairs[:, 1]], float)


def ordered(margins: Floats) -> Floats:
    """Return 1 for each difference of a pair above 0, whose order is right, 0.5 at 0, else 0; NaN where unknown."""
    return np.where(np.isnan(margins), np.nan, (margins > _SAME) + 0.5 * (np.abs(margins) <= _SAME))


def chosen_mean(proxy: Floats, gold: Floats, n: int) -> float:
    """Return the expected gold [N] of the sample with the highest proxy [N] of n; of equal ones, any is chosen.

    The expectation over the C(N, n) subsets is exact (a U-statistic), so that it is unbiased for n new samples.

    With the samples by rising proxy, the i-th is chosen from C(i-1, n-1) of the C(N, n) subsets of n. With
    ``gold = proxy`` it is the expected maximum.
    """
    if not 1 <= n <= len(proxy):
        raise ValueError(f"best of {n} needs as many samples, found {len(proxy)}")
    samples = len(proxy)
    i = np.arange(samples, 1, -1)
    falling = np.cumprod([n / samples, *np.maximum((i - n) / (i - 1), 0.0)])  # of the N-th, the one below it, …
    order = np.argsort(proxy, kind="stable")
    levels, level_of = np.unique(proxy[order], return_inverse=True)
    weights = np.bincount(level_of, falling[::-1], len(levels))
    means = np.bincount(level_of, gold[order], len(levels)) / np.bincount(level_of, minlength=len(levels))
    return float(weights @ means)
