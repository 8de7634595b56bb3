"""Objectives, changes of rubrics and the held-out comparison, on plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rubricsvc.core.evolution import Objective
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.stats.label_search import Labels, fitted, line_of, unit_values

N = 12
CRITERIA = tuple(
    Criterion(key=key, text=f"Is {key}.", weight=weight) for key, weight in (("a", 3.0), ("b", 1.0), ("d", -2.0))
)
RUBRIC = Rubric(criteria=CRITERIA)


def given(**changes: Any) -> Labels:
    fields: dict[str, Any] = {
        "clusters": np.arange(N) // 2,
        "pairs": np.array([(0, 1), (3, 2), (4, 5)]),
        "scored": np.arange(N),
        "scores": np.linspace(0, 1, N),
    }
    return Labels(**fields | changes)


def test_unit_values_of_preferences_count_ties_half() -> None:
    rewards = np.array([1, 0, 0.5, 0.5, 0, 1, *[0] * 6], float)
    assert unit_values("preferences", given(), rewards).tolist() == [1.0, 0.5, 0.0]


def test_unit_values_of_scores_do_not_change_when_rewards_are_stretched() -> None:
    rewards = np.random.default_rng(0).random(N)
    first, second = (unit_values("scores", given(), one) for one in (rewards, 3 * rewards - 7))
    assert np.allclose(first, second) and (first <= 0).all()
    assert line_of(given(), -np.linspace(0, 1, N))[1] == 0.0, "a line that falls is flat"


@pytest.mark.parametrize("objective", ["preferences", "scores"])
def test_fitted_weights_keep_their_signs(objective: Objective) -> None:
    random = np.random.default_rng(3)
    values = {key: random.random(N) for key in "abd"}
    pairs = np.array([(n, n - 1) for n in range(1, N)])
    found = fitted(RUBRIC, given(pairs=pairs), values, objective)
    assert found is not None and found != RUBRIC
    assert all(one.weight * (-1 if one.key == "d" else 1) >= 0 for one in found.criteria)
    assert fitted(RUBRIC, given(pairs=pairs[:3], scored=np.arange(3), scores=np.arange(3.0)), values, objective) is None
