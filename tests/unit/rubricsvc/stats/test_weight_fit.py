"""Weights fitted to scores and preferences, beside scikit-learn and known truths."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.stats.weight_fit import Problem, check_weights_decide, fit_weights

TRUE = np.array([3.0, 1.0, -2.0, 0.0])
SIGNS = np.array([1.0, 1.0, -1.0, 1.0])


def rubric(*weights: float, formula: str = "healthbench") -> Rubric:
    criteria = (Criterion(key=f"c{n}", text=f"Says {n}.", weight=weight) for n, weight in enumerate(weights))
    return Rubric(criteria=tuple(criteria), formula=formula)


def scores(noise: float = 0.1, *, people: int = 1, rows: int = 300, signs: bool = True) -> Problem:
    random = np.random.default_rng(0)
    values = random.random((rows, 4))
    person = np.arange(rows) % people
    given = values @ TRUE / 6 + 0.4 * person / people + noise * random.standard_normal(rows)
    return Problem(values, np.arange(rows) // 3, SIGNS if signs else None, given, [f"p{n}" for n in person])


def preferences(signs: bool = True, rows: int = 400) -> Problem:
    random = np.random.default_rng(1)
    values = random.random((rows, 4)) - random.random((rows, 4))
    flipped = random.random(rows) > 1 / (1 + np.exp(-2 * values @ TRUE))
    values[flipped] *= -1
    return Problem(values, np.arange(rows) // 4, SIGNS if signs else None)


def test_score_problem_without_signs_is_ridge() -> None:
    problem, rows = scores(signs=False), np.arange(200)
    expected = Ridge(alpha=2.0).fit(problem.values[:200], problem.scores[:200])
    solution = problem.fit(rows, 2.0)
    assert solution.weights == pytest.approx(expected.coef_)
    predicted = problem.values[rows] @ solution.weights + solution.intercept
    assert predicted == pytest.approx(expected.predict(problem.values[:200]))


def test_score_problem_removes_offsets_of_people() -> None:
    problem = scores(noise=0.01, people=4, signs=False)
    assert problem.fit(np.arange(300), 0.1).weights == pytest.approx(TRUE / 6, abs=0.02)


def test_preference_problem_is_logistic_regression() -> None:
    problem = preferences(signs=False)
    both = np.vstack([problem.values, -problem.values])  # each pair twice: twice the loss, so half of C
    model = LogisticRegression(C=1 / (2 * 3.0), fit_intercept=False, tol=1e-10).fit(both, [1] * 400 + [0] * 400)
    assert problem.fit(np.arange(400), 3.0).weights == pytest.approx(model.coef_[0], rel=1e-3)


@pytest.mark.parametrize("problem", [scores(), preferences()], ids=["scores", "preferences"])
def test_fit_weights_finds_the_weights_and_improves(problem: Problem) -> None:
    found = fit_weights(problem, rubric(1.0, 1.0, -1.0, 3.0), resamples=40)
    new = np.array([one.new for one in found.weights])
    assert np.abs(new).sum() == pytest.approx(6.0, rel=1e-3) and new == pytest.approx(TRUE, abs=0.6)
    assert all(one.low is not None and one.high is not None and one.low <= one.high for one in found.weights)
    first, metric = next(iter(found.gain.items()))
    assert metric.low is not None and metric.low > 0
    by_name = {one.weights: one.metrics for one in found.held_out}
    assert by_name["fitted"][first].value > by_name["current"][first].value  # type: ignore[operator]
    assert set(by_name) == {"fitted", "current", "equal"}


def test_fit_weights_of_noise_gains_nothing() -> None:
    problem, random = scores(), np.random.default_rng(5)
    noise = Problem(problem.values, problem.clusters, None, random.random(300), problem.people)
    found = fit_weights(noise, rubric(1.0, 1.0, -1.0, 1.0), resamples=40)
    fitted = next(one.metrics["pearson"] for one in found.held_out if one.weights == "fitted")
    assert fitted.value is None or fitted.low is None or fitted.low < 0.1


def test_fit_weights_rejects_too_little_data() -> None:
    few = scores(rows=20)
    with pytest.raises(InvalidError):
        fit_weights(few, rubric(1.0, 1.0, -1.0, 1.0))


def test_check_weights_decide_refuses_formulas_without_weights() -> None:
    for formula, fits in [("weighted_mean", True), ("ldc_raw", True), ("mean", False), ("min", False)]:
        one = rubric(1.0, 2.0, formula=formula)
        if fits:
            check_weights_decide(one)
        else:
            with pytest.raises(InvalidError):
                check_weights_decide(one)
