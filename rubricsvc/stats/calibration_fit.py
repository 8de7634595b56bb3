"""Finding a judge's calibration curves on people's labels. Needs the extra ``judging``.

Prompts are split: the method is chosen by cross-validated log loss on one part, its curve is drawn on that part, and
what it is worth is told on the other, which nothing was fitted to or chosen by.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, xlogy
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import GroupKFold, GroupShuffleSplit

from rubricsvc.core.calibration import MIN_DISTANCE, Curve, Method, family
from rubricsvc.core.label import JudgedLabel
from rubricsvc.errors import InvalidError
from rubricsvc.stats.agreement import brier, expected_calibration_error
from rubricsvc.stats.intervals import Floats, Ints

METHODS: tuple[Method, ...] = ("none", "temperature", "platt", "isotonic")
LEAST_PROMPTS = 10
LEAST_LABELS = 20
"""On both sides of the split together, a family of criteria needs so many labels for a curve of its own."""

Bools = NDArray[np.bool_]

_FOLDS = 5
_LEAST_RISE = 0.02
"""Of a curve over all probabilities; with less, all answers are worth the same, and nothing is learned from them."""
_STEEPEST = 100.0


@dataclass(frozen=True, slots=True)
class Loss:
    """How far probabilities are from what people found. ``log_loss`` is in nats."""

    n: int
    ece: float
    brier: float
    log_loss: float

    @classmethod
    def of(cls, probability: Floats, outcome: Floats) -> Loss:
        ece = expected_calibration_error(probability, outcome)
        return cls(len(outcome), ece, brier(probability, outcome), log_loss(probability, outcome))


@dataclass(frozen=True, slots=True)
class Fitted:
    """What came of one family. ``before`` and ``after`` are told on held-out prompts; ``tried`` has each method's
    cross-validated log loss on the others. Without a curve ``null_reason`` says why."""

    family: str
    labels: int
    curve: Curve | None = None
    before: Loss | None = None
    after: Loss | None = None
    tried: dict[str, float] = field(default_factory=dict)
    null_reason: str | None = None


def log_loss(probability: Floats, outcome: Floats) -> float:
    """Mean cross-entropy in nats; outcomes may lie between 0 and 1."""
    p = np.clip(probability, MIN_DISTANCE, 1 - MIN_DISTANCE)
    return float(-np.mean(xlogy(outcome, p) + xlogy(1 - outcome, 1 - p)))


def fit_curve(method: Method, probability: Floats, outcome: Floats) -> Curve:
    """The curve of this method with the least log loss (isotonic: squared error).

    A slope is never negative: a judge that is worse than chance is not turned round, but told to be ignorant.
    """
    if method == "none":
        return Curve(method=method)
    if method == "isotonic":
        edge = 1.0 / (len(outcome) + 2)  # no share is certain after so few cases
        found = IsotonicRegression(y_min=edge, y_max=1 - edge, out_of_bounds="clip").fit(probability, outcome)
        knots = zip(found.X_thresholds_.tolist(), found.y_thresholds_.tolist(), strict=True)
        return Curve(method=method, knots=tuple(knots))
    scores = logit(np.clip(probability, MIN_DISTANCE, 1 - MIN_DISTANCE))
    free = method == "platt"
    start = [1.0, 0.0] if free else [1.0]
    bounds = [(0.0, _STEEPEST), (None, None)][: len(start)]
    done = minimize(lambda x: log_loss(expit(x[0] * scores + (x[1] if free else 0.0)), outcome), start, bounds=bounds)
    return Curve(method=method, slope=float(done.x[0]), offset=float(done.x[1]) if free else 0.0)


def apply(curve: Curve, probability: Floats) -> Floats:
    return np.array([curve(float(p)) for p in probability])


@dataclass(frozen=True, slots=True)
class Cases:
    """A family's labelled probabilities: what the judge gave, what people found, on which prompt; ``held`` out or not.
    All [N]."""

    probability: Floats
    outcome: Floats
    prompts: Ints
    held: Bools

    def take(self, rows: Bools) -> Cases:
        return Cases(self.probability[rows], self.outcome[rows], self.prompts[rows], self.held[rows])


def split(prompts: Sequence[int], held_out: float, seed: int) -> Bools:
    """The mask [N] of what is held out, about ``held_out`` of the prompts: none is on both sides.

    Raises:
        InvalidError: too few prompts.
    """
    count = len(set(prompts))
    if count < LEAST_PROMPTS:
        raise InvalidError(
            f"calibrating takes labels on at least {LEAST_PROMPTS} prompts, and there are usable ones on {count}",
            hint="label answers to more prompts (`rubricsvc labels import FILE`), and let the judge score them "
            "(`rubricsvc jobs submit --judge NAME --wait`): a label is usable where the judge gave a probability",
        )
    draw = GroupShuffleSplit(1, test_size=held_out, random_state=seed)
    _, test = next(draw.split(np.zeros(len(prompts)), groups=prompts))
    held = np.zeros(len(prompts), bool)
    held[test] = True
    return held


def fit_family(name: str, cases: Cases, methods: Sequence[Method] = METHODS) -> Fitted:
    """One family's curve."""
    labels = len(cases.outcome)
    fit, held = cases.take(~cases.held), cases.take(cases.held)
    if labels < LEAST_LABELS or len(np.unique(fit.prompts)) < _FOLDS or not len(held.outcome):
        return Fitted(
            name, labels, null_reason=f"{labels} labels, or their prompts, are too few: it takes {LEAST_LABELS}"
        )
    if np.ptp(fit.outcome) == 0:
        return Fitted(name, labels, null_reason="people gave one answer throughout")
    tried = {method: _cross_validated(method, fit) for method in methods}
    curve = fit_curve(min(methods, key=lambda method: tried[method]), fit.probability, fit.outcome)
    if np.ptp(apply(curve, np.asarray([0.01, 0.99]))) < _LEAST_RISE:
        why = f"its probabilities tell nothing of people's labels: every answer would get {curve(0.5):.2f}"
        return Fitted(name, labels, null_reason=why)
    before = Loss.of(held.probability, held.outcome)
    after = Loss.of(apply(curve, held.probability), held.outcome)
    return Fitted(name, labels, curve, before, after, {str(method): loss for method, loss in tried.items()})


def _cross_validated(method: Method, cases: Cases) -> float:
    predicted = np.empty_like(cases.probability)
    for fit, test in GroupKFold(_FOLDS).split(predicted, groups=cases.prompts):
        curve = fit_curve(method, cases.probability[fit], cases.outcome[fit])
        predicted[test] = apply(curve, cases.probability[test])
    return log_loss(predicted, cases.outcome)


def calibrate(
    rows: Iterable[JudgedLabel], *, held_out: float = 0.3, seed: int = 0, methods: Sequence[Method] = METHODS
) -> list[Fitted]:
    """A curve for each family of criteria that enough people labelled, from a readout's own probabilities.

    Raises:
        InvalidError: there are too few prompts with labels on what the judge gave a probability of.
    """
    used = [
        (family(row.criterion), row.verdict.probability, row.label.value, row.prompt_id)
        for row in rows
        if row.criterion and not row.criterion.check and row.verdict and row.label.value is not None
        if row.verdict.value is not None and row.verdict.probability is not None
    ]
    prompts = [prompt for *_, prompt in used]
    whole = Cases(
        np.array([p for _, p, _, _ in used], float),
        np.array([y for _, _, y, _ in used], float),
        np.array(prompts, np.int64),
        split(prompts, held_out, seed),
    )
    names = np.array([name for name, *_ in used])
    return [fit_family(name, whole.take(names == name), methods) for name in sorted(set(names.tolist()))]
