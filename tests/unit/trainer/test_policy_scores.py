"""Estimates over held-out prompts: what is averaged, left out and paired; best of n."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.estimate import Estimate
from rubricsvc.stats.estimates import mean_estimate
from rubricsvc.stats.paired import chosen_mean
from trainer.policy_scores import over_prompts_and_seeds, policy_scores

SAMPLES = [[0.0, 1.0], [0.5, 0.5], [0.2, 0.4], [1.0, 1.0], [0.0, 0.2]]
"""Two samples of each of five prompts."""


def test_policy_scores_are_means_over_prompts() -> None:
    scores = policy_scores(SAMPLES)
    mean = mean_estimate([0.5, 0.5, 0.3, 1.0, 0.1], range(5))
    assert mean.low is not None and mean.low < 0.48 < (mean.high or 0)
    values = {name: one.value if isinstance(one, Estimate) else one for name, one in scores.items()}
    best, worst = (1.0 + 0.5 + 0.4 + 1.0 + 0.2) / 5, (0.0 + 0.5 + 0.2 + 1.0 + 0.0) / 5
    assert scores["mean"] == mean
    assert values == pytest.approx({"mean": 0.48, "max_at_k": best, "worst_of_k": worst, "unscored_fraction": 0.0})


def test_policy_scores_pair_differences_by_prompt() -> None:
    """A difference that is the same on each prompt is known exactly, however much the prompts differ."""
    scores = policy_scores(SAMPLES, [0.5] * 5, {"mean": [0.4, 0.4, 0.2, 0.9, 0.0], "greedy": [0.0] * 5})
    mean, greedy = scores["mean_difference"], scores["greedy_difference"]
    assert isinstance(mean, Estimate) and isinstance(greedy, Estimate) and greedy.value == 0.5
    assert [mean.value, mean.low, mean.high] == pytest.approx([0.1] * 3)


PROMPTS, SEEDS = 12, 4
CELLS = [(prompt, seed) for seed in range(SEEDS) for prompt in range(PROMPTS)]


def test_interval_of_one_seed_is_that_over_prompts() -> None:
    values, prompts = [0.1, 0.4, 0.2, 0.9, 0.5, 0.3], list("abcdef")
    assert over_prompts_and_seeds(values, prompts, [0] * 6) == mean_estimate(values, prompts)


@pytest.mark.parametrize(("of_prompt", "of_seed"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_interval_covers_zero_where_prompts_and_seeds_differ(of_prompt: float, of_seed: float) -> None:
    """About 95 % of 300 simulated sweeps; over prompts alone far fewer where the seeds differ."""
    draws = np.random.default_rng(0)
    covered = alone = 0
    for _ in range(300):
        prompts, seeds = draws.normal(0, of_prompt, PROMPTS), draws.normal(0, of_seed, SEEDS)
        values = [float(prompts[p] + seeds[s] + draws.normal(0, 0.3)) for p, s in CELLS]
        names = [p for p, _ in CELLS]
        both, one = over_prompts_and_seeds(values, names, [s for _, s in CELLS]), mean_estimate(values, names)
        covered += both.low is not None and both.high is not None and both.low <= 0 <= both.high
        alone += one.low is not None and one.high is not None and one.low <= 0 <= one.high
    assert covered / 300 >= 0.92
    if not of_prompt:
        assert alone / 300 < 0.5


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
