"""Figures of criteria beside scipy and sums by hand; contributions and rewards beside those of `core.reward`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.stats import criteria
from rubricsvc.stats.criteria import affine, contribution_matrix, variance_shares
from rubricsvc.stats.estimates import mean_estimate
from rubricsvc.stats.intervals import Floats

NAN = float("nan")


def random_values(rows: int = 60, columns: int = 4, *, missing: float = 0.1) -> tuple[Floats, np.ndarray]:
    random = np.random.default_rng(1)
    values = random.integers(0, 2, (rows, columns)).astype(float)
    values[random.random(values.shape) < missing] = NAN
    return values, random.integers(0, 12, rows)


def test_mean_estimates_are_of_the_known_values() -> None:
    values, prompts = random_values()
    known = ~np.isnan(values[:, 1])
    expected = mean_estimate(values[known, 1].tolist(), prompts[known].tolist())
    assert criteria.mean_estimates(values, prompts)[1] == expected
    (found,) = criteria.mean_estimates(np.array([[1.0]] * 30 + [[0.0]] * 10), np.arange(40), share=True)
    wilson = stats.binomtest(30, 40).proportion_ci(0.95, method="wilson")
    assert (found.value, found.low, found.high) == pytest.approx((0.75, wilson.low, wilson.high))


def test_within_groups_by_hand() -> None:
    values = np.array([[1.0, 0.5], [0.0, 0.5], [1.0, 0.5], [1.0, NAN], [0.0, 1.0], [1.0, 0.0]])
    prompts = np.array([1, 1, 2, 2, 3, 4])  # 3 and 4 are alone
    variance, varying = criteria.within_groups(values, prompts)
    assert variance == pytest.approx([0.25, 0.0])  # (0.5 + 0) / (1 + 1), and 0 / 1
    assert varying == pytest.approx([0.5, 0.0])


def test_correlations_agree_with_scipy_on_shared_rows() -> None:
    values, _ = random_values()
    values[:, 3] = np.where(np.isnan(values[:, 3]), NAN, 1.0)  # a constant has none
    found, counts = criteria.correlations(values)
    for a in range(3):
        for b in range(3):
            both = ~np.isnan(values[:, [a, b]]).any(1)
            assert counts[a, b] == both.sum()
            assert found[a, b] == pytest.approx(stats.pearsonr(values[both, a], values[both, b]).statistic)
    assert np.isnan(found[3]).all()


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


def test_affine_finds_sums() -> None:
    for formula, expected in [("weighted_mean", True), ("mean", True), ("min", False)]:
        rubric = Rubric(criteria=tuple(Criterion(key=k, text=k) for k in "abc"), formula=formula)
        assert (affine(rubric) is not None) == expected
