"""Best-of-n: estimates from N samples against enumeration, of subsets and of a whole policy."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.stats.policy_scores import chosen_mean

EXACT = {"abs": 1e-12, "rel": 1e-12}

POLICY = {"a": 0.5, "b": 0.3, "c": 0.2}
"""A policy with three completions, and their probabilities."""
REWARDS = {"a": (0.1, 0.4), "b": (0.6, 0.9), "c": (0.6, 0.2)}
"""Proxy and gold of each; b and c are a tie."""


def enumerated(proxy: np.ndarray, gold: np.ndarray, n: int) -> float:
    """The mean over all subsets of n of the mean gold of those with the highest proxy."""
    values = []
    for subset in combinations(range(len(proxy)), n):
        best = max(proxy[i] for i in subset)
        values.append(np.mean([gold[i] for i in subset if proxy[i] == best]))
    return float(np.mean(values))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_chosen_mean_is_unbiased_for_a_policy(n: int) -> None:
    """Its expectation over all draws of N = 4 samples is the value of n samples, which is enumerated as well."""

    def expectation(size: int, value: object) -> float:
        found = 0.0
        for draw in product(POLICY, repeat=size):
            probability = np.prod([POLICY[one] for one in draw])
            found += float(probability) * value(*(np.array([REWARDS[one][i] for one in draw]) for i in (0, 1)))
        return found

    truth = expectation(n, lambda proxy, gold: float(gold[proxy == proxy.max()].mean()))
    assert expectation(4, lambda proxy, gold: chosen_mean(proxy, gold, n)) == pytest.approx(truth, **EXACT)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), min_size=2, max_size=7), st.data())
def test_chosen_mean_is_the_mean_over_all_subsets(samples: list[tuple[int, int]], data: st.DataObject) -> None:
    proxy, gold = (np.array([one[i] for one in samples], float) for i in (0, 1))
    n = data.draw(st.integers(1, len(samples)))
    assert chosen_mean(proxy, gold, n) == pytest.approx(enumerated(proxy, gold, n), abs=1e-12)


def test_chosen_mean_refuses_more_than_the_samples() -> None:
    for n in [0, 7]:
        with pytest.raises(ValueError, match="samples"):
            chosen_mean(np.zeros(6), np.zeros(6), n)
