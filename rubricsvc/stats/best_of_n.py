"""Best-of-n: what choosing the best of n samples by a reward gives, from N ≥ n samples of each prompt.

Each expectation over the C(N, n) subsets of n samples is exact (a U-statistic), so that it is unbiased for n new ones.
Arrays are [N], of one prompt. Needs the extra ``judging``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from rubricsvc.stats.intervals import Floats


def kl_bound(n: int) -> float:
    """Return the bound log n - (n - 1)/n of KL(best-of-n ‖ policy), in nats (arXiv 2401.01879)."""
    return log(n) - (n - 1) / n


def chosen_mean(proxy: Floats, gold: Floats, n: int) -> float:
    """Return the expected gold of the sample with the highest proxy of n; of equal ones, any is chosen.

    With the samples by rising proxy, the i-th is chosen from C(i-1, n-1) of the C(N, n) subsets of n. With
    ``gold = proxy`` it is the expected maximum, with both negated less the expected minimum.
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
