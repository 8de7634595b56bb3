"""Contributions and shares of the reward's variance, on random rubrics and verdicts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.stats.reward_variance import affine, contribution_matrix, variance_shares

LINEAR = ["weighted_mean", "healthbench", "open_instruct", "ldc_raw"]
OTHERS = ["mean", "min", "max", "geometric_mean"]
weights = st.sampled_from([-5.0, -1.0, 0.5, 1.0, 2.0, 10.0])
value = st.sampled_from([0.0, 0.25, 0.5, 1.0, float("nan")])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rubric, np.ndarray]:
    """A rubric of any of these formulas, and values of completions."""
    formula = draw(st.sampled_from(LINEAR + OTHERS))
    size = draw(st.integers(1, 5))
    chosen = [abs(w) if formula in OTHERS else w for w in draw(st.lists(weights, min_size=size, max_size=size))]
    rubric = Rubric(
        criteria=tuple(Criterion(key=f"c{n}", text=f"Says {n}.", weight=w) for n, w in enumerate(chosen)),
        formula=formula,
        min_coverage=0.0,
    )
    rows = draw(st.lists(st.lists(value, min_size=size, max_size=size), min_size=1, max_size=30))
    return rubric, np.array(rows)


@given(tables())
def test_contribution_matrix_is_that_of_the_formula(table: tuple[Rubric, np.ndarray]) -> None:
    rubric, values = table
    for row, parts in zip(values, contribution_matrix(rubric, values), strict=True):
        verdicts = [Verdict.scored(f"c{n}", v) for n, v in enumerate(row) if not np.isnan(v)]
        try:
            one = reward(rubric, verdicts)
        except ValueError:
            continue  # the formula has no value
        if one.value is not None:
            expected = [one.contributions.get(f"c{n}", 0.0) for n in range(len(row))]
            assert parts == pytest.approx(expected, abs=1e-9)


@given(tables())
def test_variance_shares_sum_to_1(table: tuple[Rubric, np.ndarray]) -> None:
    rubric, values = table
    parts = contribution_matrix(rubric, values)
    shares = variance_shares(parts[~np.isnan(parts).any(1)])
    assert np.isnan(shares).all() or shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("formula", "expected"), [("weighted_mean", True), ("mean", True), ("min", False)])
def test_affine_finds_sums(formula: str, expected: bool) -> None:
    rubric = Rubric(criteria=tuple(Criterion(key=k, text=k) for k in "abc"), formula=formula)
    assert (affine(rubric) is not None) == expected
