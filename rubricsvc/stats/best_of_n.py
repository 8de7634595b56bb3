"""Best-of-n: what choosing the best of n samples by a reward gives, from N ≥ n samples of each prompt.

Each expectation over the C(N, n) subsets of n samples is exact (a U-statistic), so that it is unbiased for n new ones.
Arrays are [N], of one prompt. Needs the extra ``judging``.
"""

from __future__ import annotations

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
