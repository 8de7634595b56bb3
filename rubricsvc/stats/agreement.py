"""Agreement of a judge with people, on plain arrays. Needs the extra ``judging``.

Arrays are [N], an entry for each pair of a judge's value and a label of the same thing, in [0, 1]; ``clusters`` is the
prompt of each. The class of a value is the closest level of the scale (binary: met from 0.5 on). Intervals are 95 %
percentile intervals of a bootstrap that draws whole prompts, since values on one prompt are correlated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import krippendorff
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import config_context, metrics

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric import Numeric, Scale, scale_values
from rubricsvc.stats import RESAMPLES
from rubricsvc.stats.intervals import Floats, Ints, cluster_draws, with_interval

MIN_PAIRS = 5
"""Fewer pairs than this give no estimate."""
BINS = 10
TENTHS = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, slots=True)
class Pairs:
    """A judge's values beside people's. ``levels`` are those of the scale, ascending."""

    judge: Floats
    people: Floats
    judge_class: Ints
    people_class: Ints
    levels: tuple[float, ...]

    @classmethod
    def of(
        cls,
        judge: Sequence[float],
        people: Sequence[float],
        levels: Sequence[float],
        decided: Sequence[float] | None = None,
    ) -> Pairs:
        """Return pairs of values; a judge with its own threshold is classified by ``decided``."""
        ascending = tuple(sorted(levels))
        a, b = np.asarray(judge, float), np.asarray(people, float)
        classified = a if decided is None else np.asarray(decided, float)
        return cls(a, b, nearest_level(classified, ascending), nearest_level(b, ascending), ascending)

    def take(self, rows: Ints) -> Pairs:
        """Return these rows."""
        return Pairs(self.judge[rows], self.people[rows], self.judge_class[rows], self.people_class[rows], self.levels)

    def confusion(self) -> list[list[int]]:
        """Return counts [levels of people, levels of the judge]."""
        counts = Counter(zip(self.people_class.tolist(), self.judge_class.tolist(), strict=True))
        return [[counts[person, judge] for judge in range(len(self.levels))] for person in range(len(self.levels))]


def levels_of(scale: Scale) -> tuple[float, ...]:
    """Return the levels of a scale in [0, 1], ascending; of a numeric one its whole steps, or eleven points."""
    if not isinstance(scale, Numeric):
        return scale_values(scale)
    width = scale.high - scale.low
    steps = int(width) if width.is_integer() and width <= 10 else 10
    return tuple(step / steps for step in range(steps + 1))


def nearest_level(values: Floats, levels: Sequence[float]) -> Ints:
    """Return the index of the level closest to each value; halfway rounds up."""
    middles = (np.asarray(levels)[1:] + np.asarray(levels)[:-1]) / 2
    return np.searchsorted(middles, values, side="right").astype(np.int64)


def expected_calibration_error(probability: Floats, outcome: Floats) -> float:
    """Return Σ share of the bin · |mean outcome - mean probability| over bins of equal width (arXiv 1706.04599).

    It is biased upwards if bins hold few values.
    """
    which = np.minimum((probability * BINS).astype(int), BINS - 1)
    gap = np.bincount(which, outcome - probability)
    return float(np.abs(gap).sum() / len(probability))


def brier(probability: Floats, outcome: Floats) -> float:
    """Return the mean squared difference; outcomes may lie between 0 and 1."""
    return float(np.mean((probability - outcome) ** 2))


def _alpha(classes: NDArray[Any], levels: int) -> float:
    """Return Krippendorff's alpha of classes [raters, things], NaN where a rating is missing."""
    scale = "nominal" if levels == 2 else "ordinal"
    return float(krippendorff.alpha(classes, level_of_measurement=scale, value_domain=list(range(levels))))


METRICS: dict[str, Callable[[Pairs], float]] = {
    "accuracy": lambda p: float(metrics.accuracy_score(p.people_class, p.judge_class)),
    "balanced_accuracy": lambda p: float(metrics.recall_score(p.people_class, p.judge_class, **_macro(p.people_class))),
    "macro_f1": lambda p: float(metrics.f1_score(p.people_class, p.judge_class, **_macro(p.people_class))),
    "kappa": lambda p: float(metrics.cohen_kappa_score(p.people_class, p.judge_class)),
    "weighted_kappa": lambda p: float(metrics.cohen_kappa_score(p.people_class, p.judge_class, weights="quadratic")),
    "alpha": lambda p: _alpha(np.stack([p.people_class, p.judge_class]), len(p.levels)),
    "auroc": lambda p: float(metrics.roc_auc_score(p.people_class, p.judge)),
    "ece": lambda p: expected_calibration_error(p.judge, p.people),
    "brier": lambda p: brier(p.judge, p.people),
    "pearson": lambda p: float(stats.pearsonr(p.judge, p.people).statistic),
    "spearman": lambda p: float(stats.spearmanr(p.judge, p.people).statistic),
}
"""By name. Balanced accuracy and macro-F1 are means over the classes that people gave."""

CORRELATIONS = ("pearson", "spearman")
_PROBABILITY_METRICS = ("auroc", "ece", "brier")
_CLASS_METRICS = ("balanced_accuracy", "macro_f1", "kappa", "weighted_kappa", "alpha", "auroc")
_CONSTANT_LABELS = "all labels are the same"
_REQUIREMENTS: tuple[tuple[tuple[str, ...], Callable[[Pairs], bool], str], ...] = (
    (_PROBABILITY_METRICS, lambda p: len(p.levels) == 2, "only on a scale of two levels"),
    (CORRELATIONS, lambda p: len(p.levels) > 2, "only on a scale of more than two levels"),
    (_CLASS_METRICS, lambda p: bool(np.ptp(p.people_class)), _CONSTANT_LABELS),
    (CORRELATIONS, lambda p: bool(np.ptp(p.people)), _CONSTANT_LABELS),
    (CORRELATIONS, lambda p: bool(np.ptp(p.judge)), "all values of the judge are the same"),
)
"""Names of metrics, what they require of the pairs, and why there is none otherwise."""


def _macro(present: Ints) -> dict[str, Any]:
    return {"average": "macro", "labels": np.unique(present), "zero_division": 0.0}


def null_reason(name: str, pairs: Pairs) -> str | None:
    """Return why these pairs have no such metric; None if they have."""
    if len(pairs.judge) < MIN_PAIRS:
        return f"{len(pairs.judge)} pairs; an estimate needs {MIN_PAIRS}"
    return next((reason for names, met, reason in _REQUIREMENTS if name in names and not met(pairs)), None)


def estimate_metrics(
    pairs: Pairs,
    clusters: Sequence[int],
    names: Sequence[str] = tuple(METRICS),
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Return the metrics by name, each with its interval; without intervals if ``resamples`` is 0."""
    estimates = {name: Estimate(None, null_reason=null_reason(name, pairs)) for name in names}
    samples: dict[str, list[float]] = {name: [] for name, unknown in estimates.items() if unknown.null_reason is None}
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for rows in cluster_draws(np.asarray(clusters), resamples, seed) if samples else ():
            drawn = pairs.take(rows)
            for name, values in samples.items():
                if null_reason(name, drawn) is None:
                    values.append(METRICS[name](drawn))
        for name, values in samples.items():
            estimates[name] = with_interval(METRICS[name](pairs), values, len(set(clusters)), resamples)
    return estimates


def inter_annotator_alpha(
    values: Floats, levels: Sequence[float], clusters: Sequence[int], *, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Return Krippendorff's alpha of ``values`` [people, things], NaN where a person did not label a thing.

    ``clusters`` [things] is the prompt of each. Things with fewer than two labels are left out.
    """
    shared = np.flatnonzero((~np.isnan(values)).sum(0) > 1)
    known, among = values[:, shared], np.asarray(clusters)[shared]
    classes = np.where(np.isnan(known), np.nan, nearest_level(known, sorted(levels)))
    if len(shared) < MIN_PAIRS:
        return Estimate(None, null_reason=f"{len(shared)} labelled by several; an estimate needs {MIN_PAIRS}")
    if np.nanmin(classes) == np.nanmax(classes):
        return Estimate(None, null_reason=_CONSTANT_LABELS)
    draws = (classes[:, rows] for rows in cluster_draws(among, resamples, seed))
    samples = [_alpha(drawn, len(levels)) for drawn in draws if np.nanmin(drawn) < np.nanmax(drawn)]
    return with_interval(_alpha(classes, len(levels)), samples, len(set(among.tolist())), resamples)
