"""Best-of-n: what choosing the best of n samples by a reward gives, from N ≥ n samples of each prompt.

Each expectation over the C(N, n) subsets of n samples is exact (a U-statistic), so that it is unbiased for n new ones.
Arrays are [N], of one prompt. Needs the extra ``judging``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb, log

import numpy as np

from rubricsvc.stats.intervals import Floats, Ints

MOST_SUBSETS = 500
"""Subsets of one prompt that are counted out for voting; of more, so many are drawn."""


def kl_bound(n: int) -> float:
    """Return the bound log n - (n - 1)/n of KL(best-of-n ‖ policy), in nats (arXiv 2401.01879)."""
    return log(n) - (n - 1) / n


def chosen_mean(proxy: Floats, gold: Floats, n: int) -> float:
    """Return the expected gold of the sample with the highest proxy of n; of equal ones, any is chosen.

    With the samples by rising proxy, the i-th is chosen from C(i-1, n-1) of the C(N, n) subsets of n. With
    ``gold = proxy`` it is the expected maximum, with both negated less the expected minimum.

    Raises:
        ValueError: There are fewer than n samples.
    """
    if not 1 <= n <= len(proxy):
        raise ValueError(f"best of {n} needs as many samples, found {len(proxy)}")
    order = np.argsort(proxy, kind="stable")
    levels, level_of = np.unique(proxy[order], return_inverse=True)
    weights = np.bincount(level_of, selection_weights(len(proxy), n), len(levels))
    means = np.bincount(level_of, gold[order], len(levels)) / np.bincount(level_of, minlength=len(levels))
    return float(weights @ means)


def selection_weights(samples: int, n: int) -> Floats:
    """Return for each of N samples by rising reward the probability that it is the best of n: C(i-1, n-1)/C(N, n)."""
    i = np.arange(samples, 1, -1)
    falling = np.cumprod([n / samples, *np.maximum((i - n) / (i - 1), 0.0)])  # of the N-th, the one below it, …
    return np.asarray(falling[::-1], float)


def distinct_mean(groups: Ints, n: int) -> float:
    """Return the expected number of different groups among n of the samples: rarefaction (Hurlbert 1971)."""
    total = comb(len(groups), n)
    _, counts = np.unique(groups, return_counts=True)
    return float(sum(1 - comb(len(groups) - int(count), n) / total for count in counts))


def voted_mean(weights: Floats, gold: Floats, groups: Ints, n: int, *, seed: int = 0) -> float:
    """Return the expected gold of the group whose samples among n have the largest sum of weights.

    Weights below 0 count as 0; the gold of a group is the mean over its samples among the n; of equal groups, any is
    chosen. Up to `MOST_SUBSETS` subsets are counted out, else so many are drawn, which is unbiased as well.
    """
    subsets = _subsets(len(gold), n, seed)  # [S, n]
    names, group_of = np.unique(groups, return_inverse=True)
    cells = np.arange(len(subsets))[:, None] * len(names) + group_of[subsets]

    def sums(values: Floats) -> Floats:
        found = np.bincount(cells.ravel(), values[subsets].ravel(), len(subsets) * len(names))
        return np.asarray(found, float).reshape(len(subsets), len(names))

    counts, votes = sums(np.ones_like(gold)), sums(np.maximum(weights, 0.0))
    means = sums(gold) / np.maximum(counts, 1)
    wins = (counts > 0) & (votes >= votes.max(1, keepdims=True) - 1e-12)
    return float(((wins * means).sum(1) / wins.sum(1)).mean())


def _subsets(samples: int, n: int, seed: int) -> Ints:
    """Return all subsets of n samples [S, n], or `MOST_SUBSETS` drawn ones."""
    if comb(samples, n) <= MOST_SUBSETS:
        return np.array(list(combinations(range(samples), n)), np.int64)
    return np.random.default_rng(seed).random((MOST_SUBSETS, samples)).argsort(1)[:, :n].astype(np.int64)


SAMPLE_CURVES: dict[str, Callable[[Floats, Ints, int], float]] = {
    "oracle": lambda gold, _groups, n: chosen_mean(gold, gold, n),
    "worst": lambda gold, _groups, n: -chosen_mean(-gold, -gold, n),
    "vote": lambda gold, groups, n: voted_mean(np.ones_like(gold), gold, groups, n),
    "distinct": lambda _gold, groups, n: distinct_mean(groups, n),
}
"""Curves over n by name, of the golds and the groups of a prompt's samples."""

JUDGE_CURVES: dict[str, Callable[[Floats, Floats, Ints, int], float]] = {
    "proxy": lambda proxy, _gold, _groups, n: chosen_mean(proxy, proxy, n),
    "gold": lambda proxy, gold, _groups, n: chosen_mean(proxy, gold, n),
    "weighted_vote": voted_mean,
}
"""Curves over n by name, of the proxies, the golds and the groups of a prompt's samples."""


def numbers(most: int) -> list[int]:
    """Return 1, 2, 4, … up to ``most``, and ``most``."""
    powers = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return sorted({*powers, most})


def slope(gold: Sequence[float], ns: Sequence[int]) -> float:
    """Return the rise of a prompt's gold over d = √(`kl_bound`), by least squares through the value of one sample.

    ``gold`` has a value for each of ``ns``, which begin with 1.
    """
    d = np.sqrt([kl_bound(n) for n in ns])
    return float(d @ (np.array(gold) - gold[0]) / (d @ d))
