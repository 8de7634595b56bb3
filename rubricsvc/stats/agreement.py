"""How well a judge agrees with people: the arithmetic, on plain arrays. Needs the extra ``judging``.

All arrays are [N], an entry for each pair of findings on the same thing, values in [0, 1]; ``clusters`` names the
prompt of each. A finding's class is the level of the scale that it lies nearest to (on a binary one: met from 0.5
upwards). Intervals are 95 % percentile intervals of a bootstrap that draws whole prompts, since findings on one prompt
are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import krippendorff
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import config_context, metrics

from rubricsvc.core.rubric import Binary, Ordinal, Scale
from rubricsvc.stats.intervals import MIN_CLUSTERS, Floats, Ints, cluster_draws, percentile_interval

LEAST = 5
"""Fewer pairs than this give no figure, fewer prompts no interval."""
LEAST_DRAWS = 20
"""Fewer draws that allow a figure give it no interval."""

BINS = 10
RESAMPLES = 300


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its interval; or no number, and why. An interval is None where it cannot be told, and why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    null_reason: str | None = None
    why_no_interval: str | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Findings of a judge beside those of people. ``levels`` are the scale's, ascending."""

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
        """Pairs of values. Classes are the nearest levels; of ``decided``, where the judge has its own threshold."""
        ascending = tuple(sorted(levels))
        a, b = np.asarray(judge, float), np.asarray(people, float)
        said = a if decided is None else np.asarray(decided, float)
        return cls(a, b, nearest(said, ascending), nearest(b, ascending), ascending)

    def take(self, rows: Ints) -> Pairs:
        return replace(
            self,
            judge=self.judge[rows],
            people=self.people[rows],
            judge_class=self.judge_class[rows],
            people_class=self.people_class[rows],
        )

    def confusion(self) -> list[list[int]]:
        """Counts [levels of people, levels of the judge]."""
        matrix = metrics.confusion_matrix(self.people_class, self.judge_class, labels=list(range(len(self.levels))))
        counts: list[list[int]] = matrix.tolist()
        return counts


def levels_of(scale: Scale) -> tuple[float, ...]:
    """What can be said on a scale, ascending, in [0, 1]: of a number its whole steps, or eleven points of its range."""
    if isinstance(scale, Binary):
        return (0.0, 1.0)
    if isinstance(scale, Ordinal):
        return tuple(sorted(level.value for level in scale.levels))
    width = scale.high - scale.low
    steps = int(width) if width.is_integer() and width <= 10 else 10
    return tuple(step / steps for step in range(steps + 1))


def nearest(values: Floats, levels: Sequence[float]) -> Ints:
    """The index of the level nearest to each value; halfway goes up."""
    middles = (np.asarray(levels)[1:] + np.asarray(levels)[:-1]) / 2
    return np.searchsorted(middles, values, side="right").astype(np.int64)


def expected_calibration_error(probability: Floats, outcome: Floats, bins: int = BINS) -> float:
    """Σ share of the bin · |mean outcome - mean probability|, over bins of equal width (Guo et al., arXiv 1706.04599).

    It is biased upwards where bins hold few findings.
    """
    which = np.minimum((probability * bins).astype(int), bins - 1)
    gap = np.bincount(which, outcome - probability, minlength=bins)
    return float(np.abs(gap).sum() / len(probability))


def brier(probability: Floats, outcome: Floats) -> float:
    """The mean squared difference; outcomes may lie between 0 and 1."""
    return float(np.mean((probability - outcome) ** 2))


def _kappa(pairs: Pairs, weights: str | None = None) -> float:
    return float(metrics.cohen_kappa_score(pairs.people_class, pairs.judge_class, weights=weights))


def _alpha(classes: NDArray[Any], levels: int) -> float:
    """Krippendorff's alpha of classes [raters, things], NaN where there is none."""
    scale = "nominal" if levels == 2 else "ordinal"
    return float(krippendorff.alpha(classes, level_of_measurement=scale, value_domain=list(range(levels))))


FIGURES: dict[str, Callable[[Pairs], float]] = {
    "accuracy": lambda p: float(metrics.accuracy_score(p.people_class, p.judge_class)),
    "balanced_accuracy": lambda p: float(metrics.recall_score(p.people_class, p.judge_class, **_macro(p.people_class))),
    "macro_f1": lambda p: float(metrics.f1_score(p.people_class, p.judge_class, **_macro(p.people_class))),
    "kappa": _kappa,
    "weighted_kappa": lambda p: _kappa(p, "quadratic"),
    "alpha": lambda p: _alpha(np.stack([p.people_class, p.judge_class]), len(p.levels)),
    "auroc": lambda p: float(metrics.roc_auc_score(p.people_class, p.judge)),
    "ece": lambda p: expected_calibration_error(p.judge, p.people),
    "brier": lambda p: brier(p.judge, p.people),
    "pearson": lambda p: float(stats.pearsonr(p.judge, p.people).statistic),
    "spearman": lambda p: float(stats.spearmanr(p.judge, p.people).statistic),
}
"""Name to its arithmetic. Balanced accuracy and macro-F1 are means over the classes that people gave."""

CORRELATIONS = ("pearson", "spearman")


@dataclass(frozen=True, slots=True)
class _Need:
    """Some figures take more than pairs."""

    names: frozenset[str]
    met: Callable[[Pairs], bool]
    why: str


_ONE_ANSWER = "people gave one answer throughout"
_NEEDS = (
    _Need(frozenset({"auroc", "ece", "brier"}), lambda p: len(p.levels) == 2, "only on a scale of two levels"),
    _Need(frozenset(CORRELATIONS), lambda p: len(p.levels) > 2, "only on a scale of more than two levels"),
    _Need(
        frozenset({"balanced_accuracy", "macro_f1", "kappa", "weighted_kappa", "alpha", "auroc"}),
        lambda p: bool(np.ptp(p.people_class)),
        _ONE_ANSWER,
    ),
    _Need(frozenset(CORRELATIONS), lambda p: bool(np.ptp(p.people)), _ONE_ANSWER),
    _Need(frozenset(CORRELATIONS), lambda p: bool(np.ptp(p.judge)), "the judge gave one answer throughout"),
)


def _macro(present: Ints) -> dict[str, Any]:
    return {"average": "macro", "labels": np.unique(present), "zero_division": 0.0}


def why_not(name: str, pairs: Pairs) -> str | None:
    """Why there is no such figure, where there is none."""
    if len(pairs.judge) < LEAST:
        return f"{len(pairs.judge)} pairs; a figure takes {LEAST}"
    return next((need.why for need in _NEEDS if name in need.names and not need.met(pairs)), None)


def measure(
    pairs: Pairs,
    clusters: Sequence[int],
    names: Sequence[str] = tuple(FIGURES),
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Figure]:
    """The figures by name, each with its interval. ``resamples`` 0: without intervals."""
    with config_context(assume_finite=True, skip_parameter_validation=True):
        whole = {name: why_not(name, pairs) or FIGURES[name](pairs) for name in names}
        told = [name for name in names if not isinstance(whole[name], str)]
        drawn = _bootstrap(pairs, np.asarray(clusters), told, resamples, seed)
    prompts = len(set(clusters))
    return {
        name: Figure(None, null_reason=value)
        if isinstance(value, str)
        else _figure(value, drawn[name], prompts, resamples)
        for name, value in whole.items()
    }


def alpha_of_people(
    values: Floats, levels: Sequence[float], clusters: Sequence[int], *, resamples: int = RESAMPLES, seed: int = 0
) -> Figure:
    """Krippendorff's alpha of ``values`` [people, things], NaN where a person did not label a thing.

    ``clusters`` [things]: the prompt of each. Things that fewer than two labelled count for nothing.
    """
    twice = np.flatnonzero((~np.isnan(values)).sum(0) > 1)
    known, among = values[:, twice], np.asarray(clusters)[twice]
    classes = np.where(np.isnan(known), np.nan, nearest(known, sorted(levels)))
    if len(twice) < LEAST:
        return Figure(None, null_reason=f"{len(twice)} labelled by several; a figure takes {LEAST}")
    if np.nanmin(classes) == np.nanmax(classes):
        return Figure(None, null_reason=_ONE_ANSWER)
    samples = (classes[:, rows] for rows in cluster_draws(among, resamples, seed))
    drawn = [_alpha(sample, len(levels)) for sample in samples if np.nanmin(sample) < np.nanmax(sample)]
    return _figure(_alpha(classes, len(levels)), drawn, len(set(among.tolist())), resamples)


def _bootstrap(
    pairs: Pairs, clusters: NDArray[Any], names: Sequence[str], resamples: int, seed: int
) -> dict[str, list[float]]:
    """Each figure over ``resamples`` draws of whole clusters; a draw that does not allow a figure is left out of it."""
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for rows in cluster_draws(clusters, resamples, seed) if names else ():
        sample = pairs.take(rows)
        for name in names:
            if why_not(name, sample) is None:
                drawn[name].append(FIGURES[name](sample))
    return drawn


def _figure(value: float, drawn: Sequence[float], prompts: int, resamples: int) -> Figure:
    why = _why_no_interval(len(drawn), prompts, resamples)
    return Figure(value, why_no_interval=why) if why else Figure(value, *percentile_interval(drawn))


def _why_no_interval(drawn: int, prompts: int, resamples: int) -> str | None:
    if drawn >= LEAST_DRAWS:
        return None
    if resamples < LEAST_DRAWS:
        return f"{resamples} draws; an interval takes {LEAST_DRAWS}"
    if prompts < MIN_CLUSTERS:
        return f"{prompts} prompts; an interval takes {MIN_CLUSTERS}"
    return f"{drawn} of {resamples} draws have this figure; an interval takes {LEAST_DRAWS}"
