"""Estimates over held-out prompts: what is averaged, what is left out, and what is paired."""

from __future__ import annotations

import pytest

from rubricsvc.core.estimate import mean_estimate
from rubricsvc.stats.policy_scores import PromptValues, policy_scores

SAMPLES = [[0.0, 1.0], [0.5, 0.5], [0.2, 0.4], [1.0, 1.0], [0.0, 0.2]]
"""Two samples of each of five prompts."""


def test_policy_scores_are_means_over_prompts() -> None:
    scores = policy_scores(SAMPLES)
    means = [0.5, 0.5, 0.3, 1.0, 0.1]
    assert scores.mean == mean_estimate(means, range(5))
    assert scores.mean.low is not None and scores.mean.low < 0.48 < (scores.mean.high or 0)
    assert scores.max_at_k.value == pytest.approx((1.0 + 0.5 + 0.4 + 1.0 + 0.2) / 5)
    assert scores.worst_of_k.value == pytest.approx((0.0 + 0.5 + 0.2 + 1.0 + 0.0) / 5)
    assert (scores.greedy, scores.mean_difference, scores.unscored_fraction) == (None, None, 0.0)


def test_policy_scores_pair_differences_by_prompt() -> None:
    """A difference that is the same on each prompt is known exactly, however much the prompts differ."""
    before = PromptValues([0.4, 0.4, 0.2, 0.9, 0.0], [0.0] * 5)
    scores = policy_scores(SAMPLES, [0.5] * 5, before)
    assert scores.mean_difference is not None and scores.greedy_difference is not None
    assert scores.mean_difference.value == pytest.approx(0.1)
    assert scores.mean_difference.low == pytest.approx(0.1) == scores.mean_difference.high
    assert scores.greedy_difference.value == 0.5
