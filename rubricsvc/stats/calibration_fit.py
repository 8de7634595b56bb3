"""Fit a judge's calibration curves to people's labels. Needs the extra ``judging``.

Prompts are split. On one part the method is chosen by cross-validated log loss and its curve is fitted; its effect is
measured on the other part, which neither has seen.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, xlogy
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import GroupKFold, GroupShuffleSplit

from rubricsvc.core.judge import MIN_DISTANCE, Curve, Method, family
from rubricsvc.core.verdict import JudgedLabel
from rubricsvc.errors import InvalidError
from rubricsvc.stats.agreement import expected_calibration_error
from rubricsvc.stats.intervals import Floats, Ints
from rubricsvc.stats.reports import CalibrationLoss, FittedFamily

METHODS: tuple[Method, ...] = ("none", "temperature", "platt", "isotonic")
MIN_PROMPTS = 10
MIN_LABELS = 20  # of one family of criteria, on both sides of the split together

Rows = NDArray[np.void]
"""Each with the ``family`` of a criterion, a judge's ``probability``, a person's ``outcome`` and the ``prompt``."""

_FOLDS = 5
_MIN_RISE = 0.02
"""Of a curve over all probabilities; with less, all answers have the same value and the curve is useless."""
_MAX_SLOPE = 100.0


def log_loss(probability: Floats, outcome: Floats) -> float:
    """Return the mean cross-entropy in nats; outcomes may lie between 0 and 1."""
    p = np.clip(probability, MIN_DISTANCE, 1 - MIN_DISTANCE)
    return float(-np.mean(xlogy(outcome, p) + xlogy(1 - outcome, 1 - p)))


def fit_curve(method: Method, probability: Floats, outcome: Floats) -> Curve:
    """Return the curve of this method with the least log loss (isotonic: squared error).

    A slope is never negative: the probabilities of a judge that is worse than chance become uninformative.
    """
    if method == "none":
        return Curve(method=method)
    if method == "isotonic":
        edge = 1.0 / (len(outcome) + 2)  # no share is certain after so few cases
        fitted = IsotonicRegression(y_min=edge, y_max=1 - edge, out_of_bounds="clip").fit(probability, outcome)
        knots = zip(fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist(), strict=True)
        return Curve(method=method, knots=tuple(knots))
    scores = logit(np.clip(probability, MIN_DISTANCE, 1 - MIN_DISTANCE))
    bounds = [(0.0, _MAX_SLOPE), (None, None) if method == "platt" else (0.0, 0.0)]
    best = minimize(lambda x: log_loss(expit(x[0] * scores + x[1]), outcome), [1.0, 0.0], bounds=bounds)
    return Curve(method=method, slope=float(best.x[0]), offset=float(best.x[1]))


def split(prompts: Sequence[int], held_out: float, seed: int) -> tuple[Ints, Ints]:
    """Return the rows to fit and those held out, about a share ``held_out`` of the prompts; none is on both sides."""
    count = len(set(prompts))
    if count < MIN_PROMPTS:
        raise InvalidError(
            f"calibration needs usable labels on at least {MIN_PROMPTS} prompts, found {count}",
            hint="label completions of more prompts (`rubricsvc labels import FILE`), and let the judge score them "
            "(`rubricsvc jobs submit --judge NAME --wait`): a label is usable if the judge gave a probability",
        )
    splitter = GroupShuffleSplit(1, test_size=held_out, random_state=seed)
    fit, test = next(splitter.split(prompts, groups=prompts))
    return fit, test


def _fit_family(name: str, fit: Rows, held_out: Rows) -> FittedFamily:
    labels, reason = len(fit) + len(held_out), None
    probability, outcome = fit["probability"], fit["outcome"]
    if labels < MIN_LABELS or len(np.unique(fit["prompt"])) < _FOLDS or not len(held_out):
        reason = f"{labels} labels are too few, or on too few prompts; {MIN_LABELS} are needed"
    elif np.ptp(outcome) == 0:
        reason = "all labels are the same"
    if reason:
        return FittedFamily(family=name, labels=labels, null_reason=reason)

    losses: dict[Method, float] = {}
    for method in METHODS:
        predicted = np.empty_like(probability)
        for train, test in GroupKFold(_FOLDS).split(predicted, groups=fit["prompt"]):
            curve = fit_curve(method, probability[train], outcome[train])
            predicted[test] = [curve(float(p)) for p in probability[test]]
        losses[method] = log_loss(predicted, outcome)
    curve = fit_curve(min(METHODS, key=lambda method: losses[method]), probability, outcome)
    if curve(0.99) - curve(0.01) < _MIN_RISE:
        reason = f"the probabilities are unrelated to the labels: every answer would get {curve(0.5):.2f}"
        return FittedFamily(family=name, labels=labels, null_reason=reason)
    truth, measured = held_out["outcome"], list[CalibrationLoss]()
    uncalibrated = held_out["probability"]
    for given in (uncalibrated, np.array([curve(float(p)) for p in uncalibrated])):
        ece, brier = expected_calibration_error(given, truth), float(np.mean((given - truth) ** 2))
        measured.append(CalibrationLoss(n=len(truth), ece=ece, brier=brier, log_loss=log_loss(given, truth)))
    before, after = measured
    return FittedFamily(family=name, labels=labels, curve=curve, before=before, after=after, cv_log_loss=losses)


def calibrate(rows: Iterable[JudgedLabel], *, held_out: float = 0.3, seed: int = 0) -> list[FittedFamily]:
    """Fit a curve for each family of criteria with enough labels, from a readout's own probabilities."""
    used = [
        (family(row.criterion), row.verdict.probability, row.label.value, row.prompt_id)
        for row in rows
        if row.criterion and not row.criterion.check and row.verdict and row.label.value is not None
        if row.verdict.value is not None and row.verdict.probability is not None
    ]
    columns = [("family", object), ("probability", float), ("outcome", float), ("prompt", np.int64)]
    table: Rows = np.array(used, columns)
    fit, test = (table[numbers] for numbers in split(table["prompt"].tolist(), held_out, seed))
    names = sorted(set(table["family"]))
    return [_fit_family(name, fit[fit["family"] == name], test[test["family"] == name]) for name in names]
