"""Two rewards beside people's scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rubricsvc.stats.paired import people_agreement


def sides(rows: int = 60) -> tuple[list[float], list[float], list[int], list[tuple[int, str, float]]]:
    """Old rewards are half noise, new ones nearly what the person says; three completions a prompt."""
    random = np.random.default_rng(0)
    scores = random.random(rows)
    old, new = 0.3 * scores + random.random(rows), scores + 0.05 * random.random(rows)
    return old.tolist(), new.tolist(), [row // 3 for row in range(rows)], [(n, "ann", v) for n, v in enumerate(scores)]


def test_people_agreement_agrees_with_scipy_and_pairs_the_difference() -> None:
    old, new, prompts, labels = sides()
    scores = [score for _, _, score in labels]
    pearson, spearman, kendall, accuracy = people_agreement(old, new, prompts, labels)
    assert pearson.old.value == pytest.approx(stats.pearsonr(old, scores).statistic)
    assert spearman.new.value == pytest.approx(stats.spearmanr(new, scores).statistic)
    assert kendall.old.value == pytest.approx(stats.kendalltau(old, scores).statistic)
    assert (kendall.n, accuracy.n) == (60, 60)
    for one in (pearson, spearman, kendall, accuracy):
        assert one.difference.value == pytest.approx((one.new.value or 0) - (one.old.value or 0))
        assert one.difference.low is not None and one.difference.low > 0


def test_people_agreement_of_equal_rewards_differs_by_0() -> None:
    old, _, prompts, labels = sides()
    for one in people_agreement(old, old, prompts, labels):
        assert (one.difference.value, one.difference.low, one.difference.high) == (0.0, 0.0, 0.0)


def test_people_agreement_says_why_a_figure_is_missing() -> None:
    old, new, prompts, labels = sides()
    for one in people_agreement(old, new, prompts, labels[:3]):
        assert one.old.value is None and one.old.null_reason
    pearson, *_ = people_agreement([0.5] * 60, new, prompts, labels)
    assert (pearson.old.value, pearson.difference.value) == (None, None)
    assert pearson.new.value is not None
