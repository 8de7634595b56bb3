"""Two rewards beside people's scores."""

from __future__ import annotations

import numpy as np
import pytest

from workers.scoring.reward_changes import people_agreement, ranks


def sides(rows: int = 60) -> tuple[list[float], list[float], list[int], list[tuple[int, str, float]]]:
    """Old rewards are half noise, new ones nearly what the person says; three completions a prompt."""
    random = np.random.default_rng(0)
    scores = random.random(rows)
    old, new = 0.3 * scores + random.random(rows), scores + 0.05 * random.random(rows)
    return old.tolist(), new.tolist(), [row // 3 for row in range(rows)], [(n, "ann", v) for n, v in enumerate(scores)]


def test_people_agreement_pairs_the_difference_and_says_why_it_is_missing() -> None:
    old, new, prompts, labels = sides()
    found = people_agreement(old, new, prompts, labels)
    right = [(n, m) for n in range(60) for m in range(60) if n // 3 == m // 3 and labels[n][2] > labels[m][2]]
    assert found.n == len(right) == 60
    assert found.old.value == pytest.approx(sum(old[n] > old[m] for n, m in right) / 60)
    assert found.difference.value == pytest.approx((found.new.value or 0) - (found.old.value or 0))
    assert found.difference.low is not None and found.difference.low > 0
    same = people_agreement(old, old, prompts, labels).difference
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    few = people_agreement(old, new, prompts, labels[:3])
    assert few.old.value is None and few.old.null_reason
    assert people_agreement([0.5] * 60, new, prompts, labels).old.value == 0.5


def test_ranks_share_ties_and_leave_out_none() -> None:
    assert ranks([0.5, None, 0.9, 0.5, 0.1]) == [2, None, 1, 2, 4]
