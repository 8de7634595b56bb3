"""Objectives, changes of rubrics and the held-out comparison, on plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rubricsvc.core.evolution import Operator
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.stats.label_search import Labels, line_of, mutated, unit_values

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


@pytest.mark.parametrize("operator", ["jitter", "fit", "drop", "restore"])
def test_mutated_rubrics_keep_their_signs(operator: Operator) -> None:
    random = np.random.default_rng(3)
    values = {key: random.random(N) for key in "abd"}
    other, signs = Criterion(key="e", text="Is e.", weight=1.0), {"a": 1, "b": 1, "d": -1, "e": 1}
    made = 0
    for number in range(20):
        draws = np.random.default_rng(number)
        fields: dict[str, Any] = {"labels": given(), "values": values, "objective": "scores"}
        found = mutated(operator, draws, RUBRIC, [other], **fields)
        if found is None:
            continue
        made += 1
        assert found != RUBRIC and all(one.weight * signs[one.key] >= 0 for one in found.criteria)
        assert len(found.criteria) - 3 == {"drop": -1, "restore": 1}.get(operator, 0)
    assert made or operator == "fit"
