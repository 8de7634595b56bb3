"""Rewards of many completions at once are those of `core.reward`."""

from __future__ import annotations

import numpy as np
import pytest

from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.stats.criteria import reward_vector

CASES = [
    ("weighted_mean", (3.0, 1.0, -2.0), ()),
    ("weighted_mean", (-1.0, -3.0, -2.0), ()),
    ("healthbench", (3.0, 1.0, -2.0), (2,)),
    ("weighted_mean", (3.0, 1.0, 0.5), (0,)),
    ("dr_tulu", (3.0, 1.0, -2.0), ()),
    ("open_instruct", (3.0, 1.0, -2.0), (0, 2)),
    ("rar_explicit", (3.0, 1.0, -2.0), ()),
    ("mean", (3.0, 1.0, 0.0), ()),
    ("geometric_mean", (3.0, 1.0, 2.0), (1,)),
    ("min", (3.0, 1.0, 2.0), ()),
]


@pytest.mark.parametrize(("formula", "weights", "required"), CASES)
def test_reward_vector_is_that_of_each_completion(
    formula: str, weights: tuple[float, ...], required: tuple[int, ...]
) -> None:
    criteria = [
        Criterion(key=f"c{n}", text="x", weight=weight, required=n in required) for n, weight in enumerate(weights)
    ]
    random = np.random.default_rng(0)
    values = random.choice([0.0, 0.25, 0.5, 1.0, np.nan], (200, len(weights)), p=[0.25, 0.2, 0.2, 0.25, 0.1])
    for least in (1.0, 0.5, 0.0):
        rubric, expected = Rubric(criteria=tuple(criteria), formula=formula, min_coverage=least), []
        for row in values.tolist():
            verdicts = [
                Verdict.failed(one.key, "timeout") if np.isnan(value) else Verdict.scored(one.key, value)
                for one, value in zip(criteria, row, strict=True)
            ]
            value = reward_or_null(rubric, verdicts).value
            expected.append(np.nan if value is None else value)
        np.testing.assert_allclose(reward_vector(rubric, values), expected, atol=1e-12)
