"""What weights are fitted to: overall scores by ridge regression, preferences by a Bradley–Terry model.

Needs the extra ``judging``. ``signs`` [C] restricts weights to a sign, or is None. Rows are indices into the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import Ridge

from rubricsvc.stats import paired
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.paired import error_share


class Solution(NamedTuple):
    """Fitted weights [C], and the intercept of a prediction (0 of a preference)."""

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

    def predict(self, solution: Solution, rows: Ints) -> Floats:
        """Return the scores that a person would give on average."""
        return np.asarray(self.values[rows] @ solution.weights + solution.intercept, float)

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
        people, found = self.scores[rows], {"rmse": float(np.sqrt(self.loss(one.predicted, rows)))}
        if np.ptp(one.score) > 1e-12 and np.ptp(people) > 0:
            found["pearson"] = float(np.corrcoef(one.score, people)[0, 1])
            found |= {"spearman": paired.spearman(one.score, people), "kendall": paired.kendall(one.score, people)}
        return found


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

    def predict(self, solution: Solution, rows: Ints) -> Floats:
        """Return the log odds of the preferred completion."""
        return np.asarray(self.values[rows] @ solution.weights, float)

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
