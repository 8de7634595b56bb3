"""Intervals over prompts and seeds: of one seed as over prompts, and what they cover where seeds differ."""

from __future__ import annotations

import numpy as np
import pytest

from rubricsvc.core.estimate import mean_estimate
from rubricsvc.stats.policy_scores import over_prompts_and_seeds

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
