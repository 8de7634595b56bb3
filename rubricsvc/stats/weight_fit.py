"""Fit a rubric's weights and measure them on held-out prompts. Needs the extra ``judging``."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.model_selection import GroupKFold

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_analysis import FittedWeight, HeldOut
from rubricsvc.errors import InvalidError
from rubricsvc.stats import RESAMPLES
from rubricsvc.stats.criteria import affine
from rubricsvc.stats.intervals import ENDS, Floats, Ints, bootstrap, cluster_draws
from rubricsvc.stats.paired import correlation, known, ordered


class Solution(NamedTuple):
    """Fitted weights [C], and the intercept of a prediction: of people's mean score; 0 of the log odds of a pair."""

    weights: Floats
    intercept: float = 0.0


class Problem(NamedTuple):
    """What people found of rows with ``values`` [N, C].

    Either ``scores`` [N] of completions, each by one of ``people``, who have offsets that are penalised like weights;
    or the rows are pairs, with the values of the preferred completion less those of the other. With ``signs`` [C]
    weights have these signs.
    """

    values: Floats
    clusters: NDArray[Any]
    signs: Floats | None
    scores: Floats | None = None
    people: Sequence[str] = ()

    def fit(self, rows: Ints, penalty: float) -> Solution:
        """Return the ridge solution, whose intercept is that of a person on average.

        Of pairs, the weights of least Σ log(1 + exp(-w·x)) + penalty/2 · w·w, the Bradley-Terry model.
        """
        x, size = self.values[rows], self.values.shape[1]
        offsets, design = np.empty((len(rows), 0)), x
        if self.scores is not None:
            people = np.asarray(self.people)[rows]
            names = np.unique(people)
            offsets = (people[:, None] == names[None]).astype(float)[:, : len(names) if len(names) > 1 else 0]
            design = np.hstack([x, offsets, np.ones((len(rows), 1))])
        penalties = np.full(design.shape[1], penalty)
        penalties[size + offsets.shape[1] :] = 0.0
        signs = np.zeros(size) if self.signs is None else self.signs
        bounds = [(0 if sign > 0 else None, 0 if sign < 0 else None) for sign in signs]
        bounds += [(None, None)] * (design.shape[1] - size)

        def objective(w: Floats) -> tuple[float, Floats]:
            predicted = design @ w
            if self.scores is None:
                loss, slopes = np.logaddexp(0.0, -predicted).sum(), -expit(-predicted)
            else:
                slopes = predicted - self.scores[rows]
                loss = slopes @ slopes / 2
            return float(loss + w @ (penalties * w) / 2), penalties * w + design.T @ slopes

        options = {"ftol": 1e-14, "gtol": 1e-9, "maxiter": 1000}
        start = np.zeros(design.shape[1])
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        weights, by_person, intercept = np.split(np.asarray(found.x, float), [size, size + offsets.shape[1]])
        return Solution(weights, float(intercept.sum() + offsets.mean(0) @ by_person))


PENALTIES: tuple[float, ...] = tuple(np.logspace(-1, 3, 9).tolist())
FOLDS, INNER_FOLDS = 10, 5
MIN_ROWS, MIN_CLUSTERS = 30, 10
DIGITS = 4  # significant digits of a weight


class Fit(NamedTuple):
    """Fitted weights with intervals, and the held-out metrics of several weightings."""

    weights: tuple[FittedWeight, ...]
    penalty: float
    held_out: tuple[HeldOut, ...]
    gain: dict[str, Estimate]


def check_weights_decide(rubric: Rubric) -> None:
    """Raise an InvalidError unless the rubric's formula orders completions by Σ weight · value."""
    found = affine(rubric)
    weights = np.array([criterion.weight for criterion in rubric.criteria])
    counts = weights != 0
    if found is not None:
        ratio = found[1][counts] / weights[counts]
        if ratio.min() > 0 and np.allclose(ratio, ratio[0]) and np.allclose(found[1][~counts], 0):
            return
    message = f"the formula {rubric.formula!r} of this rubric is no sum of weight · value"
    raise InvalidError(message, hint="fit a rubric with a formula such as weighted_mean or healthbench", path="formula")


def fit_weights(problem: Problem, rubric: Rubric, *, resamples: int = RESAMPLES, seed: int = 0) -> Fit:
    """Fit a rubric's weights to a problem, whose columns are its criteria.

    Criteria whose values do not vary keep their weight. The others are scaled so that the sum of their absolute weights
    stays, which changes no order.
    """
    rows, clusters = len(problem.values), len(np.unique(problem.clusters))
    if rows < MIN_ROWS or clusters < MIN_CLUSTERS:
        raise InvalidError(
            f"a fit needs {MIN_ROWS} scores or pairs on {MIN_CLUSTERS} prompts (or, of one prompt, completions),"
            f" found {rows} on {clusters}",
            hint="label more completions under the key 'overall' (`rubricsvc labels import FILE`), and score them",
        )
    old = np.array([criterion.weight for criterion in rubric.criteria])
    varies = np.ptp(problem.values, axis=0) > 1e-9
    if not varies.any():
        raise InvalidError("no criterion varies on these completions", hint="`rubricsvc rubrics analyse` shows them")
    everything = np.arange(rows)
    orders = {"fitted": np.zeros(rows), "current": problem.values @ old, "equal": problem.values @ np.sign(old)}
    for train, test in _folds(problem, everything, FOLDS, seed):
        one = problem.fit(train, best_penalty(problem, train, seed)).weights
        if (scaled := scaled_weights(one, old, np.ones(len(old), bool))) is not None:
            orders["fitted"][test] = problem.values[test] @ scaled  # without intercepts, which differ between folds
    penalty = best_penalty(problem, everything, seed)
    new = scaled_weights(problem.fit(everything, penalty).weights, old, varies)
    if new is None:
        message = "no weights of these signs predict people better than none"
        raise InvalidError(message, hint="--signs free lets a weight change its sign; `rubrics analyse` shows edges")
    draws = []
    for drawn in cluster_draws(problem.clusters, resamples, seed):
        if (scaled := scaled_weights(problem.fit(drawn, penalty).weights, old, varies)) is not None:
            draws.append(scaled)
    ends = np.quantile(draws, ENDS, axis=0).T.tolist() if draws else [(None, None)] * len(new)

    def measured(rows: Ints) -> dict[str, float]:
        """Return correlations with the scores, where both sides vary, or the share of pairs in the right order."""
        found = dict[str, dict[str, float]]()
        for name, order in orders.items():
            if problem.scores is None:
                found[name] = {"accuracy": float(ordered(order[rows]).mean())}
            else:
                both = order[rows], problem.scores[rows]
                found[name] = known(pearson=correlation("pearson", *both), spearman=correlation("spearman", *both))
        shared = found["fitted"].keys() & found["current"].keys()
        found["gain"] = {metric: found["fitted"][metric] - found["current"][metric] for metric in shared}
        return {f"{name} {metric}": value for name, one in found.items() for metric, value in one.items()}

    estimates = bootstrap(measured, problem.clusters, resamples=resamples, seed=seed)
    none = Estimate(None, null_reason="all predictions are the same")
    metrics = ("accuracy",) if problem.scores is None else ("pearson", "spearman")
    tables = {name: {one: estimates.get(f"{name} {one}", none) for one in metrics} for name in (*orders, "gain")}
    gain = tables.pop("gain")
    held_out = tuple(HeldOut.model_validate({"weights": name, "metrics": one}) for name, one in tables.items())
    weights = []
    for criterion, weight, (low, high), kept in zip(rubric.criteria, new.tolist(), ends, ~varies, strict=True):
        value = criterion.weight if kept else float(f"{weight:.{DIGITS}g}")
        interval = {"low": None, "high": None} if kept else {"low": low, "high": high}
        weights.append(FittedWeight(key=criterion.key, old=criterion.weight, new=value, kept=bool(kept), **interval))
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
    """Return the penalty of least cross-validated loss on these rows: the squared error, or of pairs the log loss."""
    losses = dict.fromkeys(PENALTIES, 0.0)
    for train, test in _folds(problem, rows, INNER_FOLDS, seed):
        for penalty in PENALTIES:
            one = problem.fit(train, penalty)
            predicted = problem.values[test] @ one.weights + one.intercept
            if problem.scores is None:
                losses[penalty] += float(np.logaddexp(0.0, -predicted).sum())
            else:
                losses[penalty] += float(((predicted - problem.scores[test]) ** 2).sum())
    return min(PENALTIES, key=losses.__getitem__)
