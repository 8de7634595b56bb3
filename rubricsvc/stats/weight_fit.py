"""Fit a rubric's weights and measure them on held-out prompts. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import FittedWeight, HeldOut
from rubricsvc.errors import InvalidError
from rubricsvc.stats import RESAMPLES, OnProgress
from rubricsvc.stats.intervals import Floats, Ints, bootstrap, cluster_draws, percentile_interval
from rubricsvc.stats.paired import Correlation, correlation, error_share, known
from rubricsvc.stats.reward_variance import affine


class Solution(NamedTuple):
    """Fitted weights [C], and the intercept of a prediction: of people's mean score, or (0) the log odds of a pair."""

    weights: Floats
    intercept: float = 0.0


class Predictions(NamedTuple):
    """What one weighting says of held-out rows: a ``score`` whose scale is free, and the ``predicted`` value."""

    score: Floats
    predicted: Floats


@dataclass(frozen=True)
class ScoreProblem:
    """Overall scores [N] of completions with ``values`` [N, C]; each person has an offset, penalised like a weight."""

    metrics: ClassVar[tuple[str, ...]] = ("pearson", "spearman", "kendall", "rmse")

    values: Floats
    scores: Floats
    people: Sequence[str]
    clusters: NDArray[Any]
    signs: Floats | None

    def fit(self, rows: Ints, penalty: float) -> Solution:
        """Return the ridge solution; its intercept is that of a person on average."""
        x, people = self.values[rows], np.asarray(self.people)[rows]
        names = np.unique(people)
        offsets = (people[:, None] == names[None]).astype(float)[:, : len(names) if len(names) > 1 else 0]
        if self.signs is None:
            design, size = np.hstack([x, offsets]), offsets.shape[1]
            model = Ridge(alpha=penalty).fit(design, self.scores[rows])
            by_person = model.coef_[len(x.T) : len(x.T) + size]
            weights = model.coef_[: x.shape[1]]
        else:  # an offset of either sign is the difference of two that are not negative
            design = np.hstack([x * self.signs, offsets, -offsets])
            model = Ridge(alpha=penalty, positive=True, tol=1e-8).fit(design, self.scores[rows])
            plus, minus = np.split(model.coef_[x.shape[1] :], 2)
            by_person, weights = plus - minus, model.coef_[: x.shape[1]] * self.signs
        return Solution(np.asarray(weights, float), float(model.intercept_ + offsets.mean(0) @ by_person))

    def scaled(self, scores: Floats, train: Ints, test: Ints) -> Floats:
        """Return predictions of a straight line; of the mean where scores do not vary."""
        centred = scores[train] - scores[train].mean()
        slope = centred @ self.scores[train] / (centred @ centred) if np.ptp(scores[train]) else 0.0
        return np.asarray(self.scores[train].mean() + slope * (scores[test] - scores[train].mean()), float)

    def loss(self, predicted: Floats, rows: Ints) -> float:
        """Return the mean squared error."""
        return float(np.mean((predicted - self.scores[rows]) ** 2))

    def measure(self, one: Predictions, rows: Ints) -> Mapping[str, float]:
        """Return correlations of the score, if both sides vary, and the root mean squared error."""
        found = {name: correlation(name, one.score, self.scores[rows]) for name in get_args(Correlation)}
        return known(rmse=float(np.sqrt(self.loss(one.predicted, rows))), **found)


@dataclass(frozen=True)
class PreferenceProblem:
    """Pairs with ``values`` [P, C]: those of the preferred completion less those of the other."""

    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "log_loss")

    values: Floats
    clusters: NDArray[Any]
    signs: Floats | None

    def fit(self, rows: Ints, penalty: float) -> Solution:
        """Return the weights of least Σ log(1 + exp(-w·x)) + penalty/2 · w·w, the Bradley–Terry model."""
        bounds = None if self.signs is None else [(0, None) if sign > 0 else (None, 0) for sign in self.signs]
        return Solution(_logistic(self.values[rows], penalty, bounds))

    def scaled(self, scores: Floats, train: Ints, test: Ints) -> Floats:
        """Return log odds proportional to the scores."""
        return np.asarray(scores[test] * _logistic(scores[train, None], 1e-3, [(0, None)])[0], float)

    def loss(self, predicted: Floats, rows: Ints) -> float:
        """Return the mean log loss."""
        return float(np.logaddexp(0.0, -predicted).mean()) if len(rows) else 0.0

    def measure(self, one: Predictions, rows: Ints) -> Mapping[str, float]:
        """Return the share of pairs in the right order, ties counting half, and the log loss."""
        return {"accuracy": 1 - error_share(one.score), "log_loss": self.loss(one.predicted, rows)}


Problem = ScoreProblem | PreferenceProblem


def _logistic(x: Floats, penalty: float, bounds: Any) -> Floats:
    def objective(w: Floats) -> tuple[float, Floats]:
        margins = x @ w
        loss = np.logaddexp(0.0, -margins).sum() + penalty / 2 * w @ w
        return float(loss), penalty * w - x.T @ expit(-margins)

    start = np.zeros(x.shape[1])
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-12, "gtol": 1e-8}
    )
    return np.asarray(found.x, float)


PENALTIES: tuple[float, ...] = tuple(np.logspace(-1, 3, 9).tolist())
FOLDS, INNER_FOLDS = 10, 5
MIN_ROWS, MIN_CLUSTERS = 30, 10
DIGITS = 4
"""Significant digits of a weight."""


@dataclass(frozen=True)
class Fit:
    """Fitted weights with intervals, and the held-out metrics of several weightings."""

    weights: tuple[FittedWeight, ...]
    penalty: float
    held_out: tuple[HeldOut, ...]
    gain: dict[str, Estimate]


def check_weights_decide(rubric: Rubric) -> None:
    """Raise an InvalidError unless the rubric's formula orders completions by Σ weight · value."""
    found, weights = affine(rubric), np.array([criterion.weight for criterion in rubric.criteria])
    counts = weights != 0
    if found is not None:
        ratio = found[1][counts] / weights[counts]
        if ratio.min() > 0 and np.allclose(ratio, ratio[0]) and np.allclose(found[1][~counts], 0):
            return
    message = f"the formula {rubric.formula!r} of this rubric is no sum of weight · value"
    raise InvalidError(message, hint="fit a rubric with a formula such as weighted_mean or healthbench", path="formula")


def fit_weights(
    problem: Problem,
    rubric: Rubric,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: OnProgress = lambda done, total, note: None,
) -> Fit:
    """Fit a rubric's weights to a problem, whose columns are its criteria.

    Criteria whose values do not vary keep their weight. The others are scaled so that the sum of their absolute weights
    stays, which changes no order.
    """
    rows, clusters = len(problem.values), len(np.unique(problem.clusters))
    if rows < MIN_ROWS or clusters < MIN_CLUSTERS:
        raise InvalidError(
            f"a fit needs {MIN_ROWS} scores or pairs on {MIN_CLUSTERS} prompts, found {rows} on {clusters}",
            hint="label more completions under the key 'overall' (`rubricsvc labels import FILE`), and score them",
        )
    old = np.array([criterion.weight for criterion in rubric.criteria])
    varies = np.ptp(problem.values, axis=0) > 1e-9
    if not varies.any():
        raise InvalidError("no criterion varies on these completions", hint="`rubricsvc rubrics analyse` shows them")
    everything, total = np.arange(rows), FOLDS + resamples + 1
    predictions = _held_out(problem, old, seed, lambda done: on_progress(done, total, "held-out prompts"))
    penalty = best_penalty(problem, everything, seed)
    new = scaled_weights(problem.fit(everything, penalty).weights, old, varies)
    if new is None:
        message = "no weights of these signs predict people better than none"
        raise InvalidError(message, hint="--signs free lets a weight change its sign; `rubrics analyse` shows edges")
    draws = []
    for done, drawn in enumerate(cluster_draws(problem.clusters, resamples, seed), FOLDS + 1):
        on_progress(done, total, "intervals of weights")
        if (one := scaled_weights(problem.fit(drawn, penalty).weights, old, varies)) is not None:
            draws.append(one)
    on_progress(total - 1, total, "intervals of metrics")
    held_out, gain = _metrics(problem, predictions, resamples, seed)
    on_progress(total, total, "")
    ends = [percentile_interval(column) for column in np.array(draws).T] if draws else [(None, None)] * len(new)
    weights = [
        FittedWeight(
            key=criterion.key,
            old=criterion.weight,
            new=criterion.weight if kept else float(f"{weight:.{DIGITS}g}"),
            low=None if kept else low,
            high=None if kept else high,
            kept=kept,
        )
        for criterion, weight, (low, high), kept in zip(
            rubric.criteria, new.tolist(), ends, (~varies).tolist(), strict=True
        )
    ]
    return Fit(tuple(weights), penalty, held_out, gain)


def scaled_weights(weights: Floats, old: Floats, varies: Any) -> Floats | None:
    """Return the weights with the old sum of absolute values over the criteria that vary; None if all are 0."""
    size = np.abs(weights[varies]).sum()
    target = np.abs(old[varies]).sum() or float(varies.sum())
    return np.where(varies, weights * target / size, old) if size > 1e-9 else None


def _folds(problem: Problem, rows: Ints, count: int, seed: int) -> list[tuple[Ints, Ints]]:
    clusters = problem.clusters[rows]
    splits = GroupKFold(min(count, len(np.unique(clusters))), shuffle=True, random_state=seed)
    return [(rows[train], rows[test]) for train, test in splits.split(rows, groups=clusters)]


def best_penalty(problem: Problem, rows: Ints, seed: int) -> float:
    """Return the penalty of least cross-validated loss on these rows."""
    folds = _folds(problem, rows, INNER_FOLDS, seed)

    def loss(penalty: float) -> float:
        total = 0.0
        for train, test in folds:
            one: Solution = problem.fit(train, penalty)
            total += len(test) * problem.loss(problem.values[test] @ one.weights + one.intercept, test)
        return total

    return min(PENALTIES, key=loss)


def _held_out(problem: Problem, old: Floats, seed: int, on_fold: Callable[[int], None]) -> dict[str, Predictions]:
    """Return the predictions of each weighting on all rows, each by the other folds."""
    size = len(problem.values)
    scores = {"current": problem.values @ old, "equal": problem.values @ np.sign(old), "mean": np.zeros(size)}
    fitted, order = np.zeros(size), np.zeros(size)  # the order without intercepts, which differ between the folds
    scaled = {name: np.zeros(size) for name in scores}
    for done, (train, test) in enumerate(_folds(problem, np.arange(size), FOLDS, seed)):
        on_fold(done)
        solution: Solution = problem.fit(train, best_penalty(problem, train, seed))
        fitted[test] = problem.values[test] @ solution.weights + solution.intercept
        weights = scaled_weights(solution.weights, old, np.ones(len(old), bool))
        order[test] = problem.values[test] @ weights if weights is not None else 0.0
        for name, score in scores.items():
            scaled[name][test] = problem.scaled(score, train, test)
    found = {name: Predictions(score, scaled[name]) for name, score in scores.items()}
    return {"fitted": Predictions(order, fitted)} | found


def _metrics(
    problem: Problem, predictions: Mapping[str, Predictions], resamples: int, seed: int
) -> tuple[tuple[HeldOut, ...], dict[str, Estimate]]:
    """Return each weighting's metrics, and what the fitted one gains over the current one, with paired intervals."""

    def measured(rows: Ints) -> dict[str, float]:
        found = {
            f"{name} {metric}": value
            for name, one in predictions.items()
            for metric, value in problem.measure(Predictions(one.score[rows], one.predicted[rows]), rows).items()
        }
        for metric in problem.metrics:
            if f"fitted {metric}" in found and f"current {metric}" in found:
                found[f"gain {metric}"] = found[f"fitted {metric}"] - found[f"current {metric}"]
        return found

    estimates = bootstrap(measured, problem.clusters, resamples=resamples, seed=seed)
    none = Estimate(None, null_reason="all predictions are the same")
    by_weights = {name: {m: estimates.get(f"{name} {m}", none) for m in problem.metrics} for name in predictions}
    held_out = [HeldOut.model_validate({"weights": name, "metrics": found}) for name, found in by_weights.items()]
    return tuple(held_out), {metric: estimates.get(f"gain {metric}", none) for metric in problem.metrics}
