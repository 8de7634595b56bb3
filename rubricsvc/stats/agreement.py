"""Agreement of a judge with people, on plain arrays. Needs the extra ``judging``.

Arrays are [N], an entry for each pair of a judge's value and a label of the same thing, in [0, 1]. Metrics of classes
take the closest level of the scale (binary: met from 0.5 on), metrics of ranks and of probabilities the values as they
are. Intervals are 95 % percentile intervals of a bootstrap that draws whole prompts, since values on one prompt are
correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import krippendorff
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.rubric import Numeric, Scale, scale_values
from rubricsvc.stats import MIN_PAIRS, RESAMPLES, paired
from rubricsvc.stats import agreement_metrics as by_class
from rubricsvc.stats.intervals import Floats, Ints, cluster_draws, with_interval

TENTHS = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, slots=True)
class Pairs:
    """A judge's values beside people's. ``levels`` are those of the scale, ascending.

    ``net_concordant`` and ``different`` count pairs of completions of one prompt, as of `ranking.concordance`:
    ``different`` are those with different labels.
    """

    judge: Floats
    people: Floats
    judge_class: Ints
    people_class: Ints
    levels: tuple[float, ...]
    net_concordant: int = 0
    different: int = 0

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

    def confusion(self) -> Ints:
        """Return counts [levels of people, levels of the judge]."""
        size = len(self.levels)
        return np.bincount(self.people_class * size + self.judge_class, minlength=size**2).reshape(size, size)

    def between_levels(self) -> int:
        """Return how many labels are not at a level of the scale."""
        return int((np.abs(np.asarray(self.levels)[self.people_class] - self.people) > 1e-9).sum())


@dataclass(frozen=True, slots=True)
class Sample:
    """Pairs with the prompt of each. ``counts`` are ``net_concordant`` and ``different`` by prompt."""

    pairs: Pairs
    prompts: Ints
    counts: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, pairs: Pairs, prompts: Sequence[int], counts: Mapping[int, tuple[int, int]] | None = None) -> Sample:
        """Return the sample of these pairs."""
        counts = counts or {}
        net_concordant, different = (sum(one[n] for one in counts.values()) for n in (0, 1))
        return cls(
            replace(pairs, net_concordant=net_concordant, different=different), np.asarray(prompts, np.int64), counts
        )

    def drawn(self, times: Mapping[int, int]) -> Pairs:
        """Return the pairs with those of each prompt as often as it was drawn."""
        repeats = [times.get(prompt, 0) for prompt in self.prompts.tolist()]
        rows = np.repeat(np.arange(len(self.prompts)), repeats)
        net_concordant, different = (sum(times.get(p, 0) * one[n] for p, one in self.counts.items()) for n in (0, 1))
        a = self.pairs
        classes = (a.judge_class[rows], a.people_class[rows])
        return Pairs(a.judge[rows], a.people[rows], *classes, a.levels, net_concordant, different)


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


def _alpha(classes: NDArray[Any], levels: int) -> float:
    """Return Krippendorff's alpha of classes [raters, things], NaN where a rating is missing."""
    scale = "nominal" if levels == 2 else "ordinal"
    return float(krippendorff.alpha(classes, level_of_measurement=scale, value_domain=list(range(levels))))


METRICS: dict[str, Callable[[Pairs], float]] = {
    "pairwise_accuracy": lambda p: (1 + p.net_concordant / p.different) / 2,
    "auroc": lambda p: by_class.auroc(p.judge, p.people),
    "accuracy": lambda p: by_class.accuracy(p.confusion()),
    "balanced_accuracy": lambda p: by_class.balanced_accuracy(p.confusion()),
    "macro_f1": lambda p: by_class.macro_f1(p.confusion()),
    "kappa": lambda p: by_class.kappa(p.confusion()),
    "weighted_kappa": lambda p: by_class.kappa(p.confusion(), quadratic=True),
    "alpha": lambda p: by_class.alpha(p.confusion()),
    "ece": lambda p: by_class.expected_calibration_error(p.judge, p.people),
    "brier": lambda p: by_class.brier(p.judge, p.people),
    "pearson": lambda p: float(stats.pearsonr(p.judge, p.people).statistic),
    "spearman": lambda p: paired.spearman(p.judge, p.people),
    "kendall": lambda p: paired.kendall(p.judge, p.people),
}
"""By name. ``pairwise_accuracy``: over the pairs of completions of one prompt with different labels, the share that the
judge orders as people do; ties count half. ``auroc`` is the same over all pairs. Balanced accuracy and macro-F1 are
means over the classes that people gave."""

CLASS_METRICS = ("accuracy", "balanced_accuracy", "macro_f1", "kappa", "weighted_kappa", "alpha")
CORRELATIONS = ("pearson", "spearman", "kendall")
OVERALL_METRICS = ("pairwise_accuracy", *CORRELATIONS)
"""Metrics of values without classes."""
_CONSTANT_LABELS = "all labels are the same"
_REQUIREMENTS: tuple[tuple[tuple[str, ...], Callable[[Pairs], bool], str], ...] = (
    (("ece", "brier"), lambda p: len(p.levels) == 2, "only on a scale of two levels"),
    (
        CORRELATIONS,
        lambda p: len(p.levels) > 2 or len(np.unique(p.people)) > 2,
        "only for labels of more than two values",
    ),
    (("auroc", *CLASS_METRICS[1:], *CORRELATIONS), lambda p: bool(np.ptp(p.people)), _CONSTANT_LABELS),
    (CLASS_METRICS[1:], lambda p: bool(np.ptp(p.people_class)), "all labels are closest to the same level"),
    (CORRELATIONS, lambda p: bool(np.ptp(p.judge)), "all values of the judge are the same"),
    (
        ("pairwise_accuracy",),
        lambda p: p.different >= MIN_PAIRS,
        f"fewer than {MIN_PAIRS} pairs of completions of one prompt have different labels",
    ),
)
"""Names of metrics, what they require of the pairs, and why there is none otherwise."""


def null_reason(name: str, pairs: Pairs) -> str | None:
    """Return why these pairs have no such metric; None if they have."""
    if len(pairs.judge) < MIN_PAIRS:
        return f"{len(pairs.judge)} pairs; an estimate needs {MIN_PAIRS}"
    return next((reason for names, met, reason in _REQUIREMENTS if name in names and not met(pairs)), None)


def estimate_metrics(
    sample: Sample, names: Sequence[str] = tuple(METRICS), *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Estimate]:
    """Return the metrics by name, each with its interval; without intervals if ``resamples`` is 0."""
    estimates, _ = mean_metrics([sample], names, resamples=resamples, seed=seed)
    for name in names:
        if (reason := null_reason(name, sample.pairs)) is not None:
            estimates[name] = Estimate(None, null_reason=reason)
    return estimates


def mean_metrics(
    samples: Sequence[Sample],
    names: Sequence[str] = tuple(METRICS),
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[dict[str, Estimate], dict[str, int]]:
    """Return the mean of each metric over the samples that have it, and over how many; each sample counts alike.

    The bootstrap draws prompts for all samples together.
    """
    having = {name: [n for n, one in enumerate(samples) if null_reason(name, one.pairs) is None] for name in names}
    used = sorted({n for numbers in having.values() for n in numbers})
    prompts = np.unique(np.concatenate([samples[n].prompts for n in used])) if used else np.array([], np.int64)
    means: dict[str, list[float]] = {name: [] for name in names}
    for drawn in cluster_draws(prompts, resamples, seed):
        times = dict(zip(*(column.tolist() for column in np.unique(prompts[drawn], return_counts=True)), strict=True))
        pairs = {n: samples[n].drawn(times) for n in used}
        for name, numbers in having.items():
            means[name] += _mean(name, [pairs[n] for n in numbers if null_reason(name, pairs[n]) is None])
    estimates = {name: Estimate(None, null_reason="no criterion has an estimate") for name in names}
    for name, numbers in having.items():
        for value in _mean(name, [samples[n].pairs for n in numbers]):
            estimates[name] = with_interval(value, means[name], len(prompts), resamples)
    return estimates, {name: len(numbers) for name, numbers in having.items()}


def _mean(name: str, several: Iterable[Pairs]) -> list[float]:
    """Return the mean of the metric, alone in a list; an empty list if there is nothing to measure."""
    values = [METRICS[name](pairs) for pairs in several]
    return [sum(values) / len(values)] if values else []


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
