"""Fit a rubric's weights and measure them on held-out prompts. Needs the extra ``judging``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.weight_fit import FittedWeight, HeldOut
from rubricsvc.errors import InvalidError
from rubricsvc.stats import RESAMPLES, OnProgress
from rubricsvc.stats.intervals import Floats, Ints, cluster_draws, percentile_interval, with_interval
from rubricsvc.stats.reward_variance import affine
from rubricsvc.stats.weight_problems import Predictions, Problem, Solution

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
    penalty = _best_penalty(problem, everything, seed)
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
    return Fit(_weights(rubric, new, draws, varies), penalty, held_out, gain)


def _weights(rubric: Rubric, new: Floats, draws: Sequence[Floats], varies: Any) -> tuple[FittedWeight, ...]:
    ends = [percentile_interval(column) for column in np.array(draws).T] if draws else [(None, None)] * len(new)
    return tuple(
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
    )


def scaled_weights(weights: Floats, old: Floats, varies: Any) -> Floats | None:
    """Return the weights with the old sum of absolute values over the criteria that vary; None if all are 0."""
    size = np.abs(weights[varies]).sum()
    target = np.abs(old[varies]).sum() or float(varies.sum())
    return np.where(varies, weights * target / size, old) if size > 1e-9 else None


def _folds(problem: Problem, rows: Ints, count: int, seed: int) -> list[tuple[Ints, Ints]]:
    clusters = problem.clusters[rows]
    splits = GroupKFold(min(count, len(np.unique(clusters))), shuffle=True, random_state=seed)
    return [(rows[train], rows[test]) for train, test in splits.split(rows, groups=clusters)]


def _best_penalty(problem: Problem, rows: Ints, seed: int) -> float:
    """Return the penalty of least cross-validated loss on these rows."""
    folds = _folds(problem, rows, INNER_FOLDS, seed)

    def loss(penalty: float) -> float:
        fitted = [(problem.fit(train, penalty), test) for train, test in folds]
        return float(sum(len(test) * problem.loss(problem.predict(one, test), test) for one, test in fitted))

    return min(PENALTIES, key=loss)


def _held_out(problem: Problem, old: Floats, seed: int, on_fold: Callable[[int], None]) -> dict[str, Predictions]:
    """Return the predictions of each weighting on all rows, each by the other folds."""
    size = len(problem.values)
    scores = {"current": problem.values @ old, "equal": problem.values @ np.sign(old), "mean": np.zeros(size)}
    fitted, order = np.zeros(size), np.zeros(size)  # the order without intercepts, which differ between the folds
    scaled = {name: np.zeros(size) for name in scores}
    for done, (train, test) in enumerate(_folds(problem, np.arange(size), FOLDS, seed)):
        on_fold(done)
        solution: Solution = problem.fit(train, _best_penalty(problem, train, seed))
        fitted[test] = problem.predict(solution, test)
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

    def measured(rows: Ints) -> dict[str, Mapping[str, float]]:
        return {
            name: problem.measure(Predictions(one.score[rows], one.predicted[rows]), rows)
            for name, one in predictions.items()
        }

    everything, prompts = measured(np.arange(len(problem.values))), len(np.unique(problem.clusters))
    draws = [measured(rows) for rows in cluster_draws(problem.clusters, resamples, seed)]

    def estimate(value: Callable[[dict[str, Mapping[str, float]]], float | None]) -> Estimate:
        found = value(everything)
        if found is None:
            return Estimate(None, null_reason="all predictions are the same")
        samples = [one for one in map(value, draws) if one is not None]
        return with_interval(found, samples, prompts, resamples)

    def difference(one: dict[str, Mapping[str, float]], metric: str) -> float | None:
        after, before = one["fitted"].get(metric), one["current"].get(metric)
        return None if after is None or before is None else after - before

    held_out = tuple(
        HeldOut.model_validate(
            {
                "weights": name,
                "metrics": {m: estimate(lambda one, n=name, m=m: one[n].get(m)) for m in problem.metrics},  # type: ignore[misc]
            }
        )
        for name in predictions
    )
    return held_out, {m: estimate(lambda one, m=m: difference(one, m)) for m in problem.metrics}  # type: ignore[misc]
