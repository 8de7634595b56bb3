"""Agreement of a judge with people, on plain arrays. Needs the extra ``judging``.

Arrays are [N], an entry for each pair of a judge's value and a label of the same thing, in [0, 1]. Metrics of classes
take the closest level of the scale (binary: met from 0.5 on), metrics of ranks and of probabilities the values as they
are. Intervals are 95 % percentile intervals of a bootstrap that draws whole prompts, since values on one prompt are
correlated.

In a report, each label is a pair with the judge's verdict on the same. The mean over criteria comes first: pooled pairs
favour a judge that only repeats how often each is met. If several people labelled the same, each two of them, both ways
round, give the inter-annotator metrics (alpha is computed over all of them), the most that can be expected of a judge.
Labels without a value and criteria that failed, were abstained on or not judged are counted and excluded.

Metrics of classes are functions of ``counts``, the confusion [levels of one rater, levels of the other]; the levels are
ascending and include those that neither used. They are fast enough for thousands of bootstrap draws; tests compare each
with scikit-learn, SciPy or krippendorff.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from statistics import fmean
from typing import Any, get_args

import krippendorff
import numpy as np
from scipy import stats

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import OVERALL, JudgedLabel
from rubricsvc.core.rubric import Numeric, Scale, scale_values
from rubricsvc.stats import MIN_PAIRS, RESAMPLES, OnProgress
from rubricsvc.stats.intervals import Floats, Ints, bootstrap
from rubricsvc.stats.paired import Correlation, correlation
from rubricsvc.stats.ranking import concordance

TENTHS = tuple(step / 10 for step in range(11))


BINS = 10


def class_metric(name: str, counts: Ints) -> float:
    """Return one of the `CLASS_METRICS` of a confusion; means over classes are over those that the first rater used.

    ``kappa`` is Cohen's, ``weighted_kappa`` by the squared distance of the levels; ``alpha`` is Krippendorff's of two
    raters without missing ratings, nominal for two levels, else ordinal.
    """
    hits, size, total = np.diag(counts), len(counts), counts.sum()
    first, second = counts.sum(1), counts.sum(0)
    used = first > 0
    match name:
        case "accuracy":
            found = hits.sum() / total
        case "balanced_accuracy":
            found = (hits[used] / first[used]).mean()
        case "macro_f1":
            found = (2 * hits / np.maximum(first + second, 1))[used].mean()
        case "alpha":
            coincidences, totals = counts + counts.T, first + second
            ranks = np.cumsum(totals) - totals / 2
            distances = np.subtract.outer(ranks, ranks) ** 2 if size > 2 else 1 - np.eye(2)
            expected = (np.outer(totals, totals) * distances).sum()
            found = 1 - (totals.sum() - 1) * (coincidences * distances).sum() / expected
        case _:
            levels = np.arange(size)
            weighted = name == "weighted_kappa"
            distances = np.subtract.outer(levels, levels) ** 2 if weighted else 1 - np.eye(size)
            found = 1 - (distances * counts).sum() / (distances * np.outer(first, second) / total).sum()
    return float(found)


def auroc(scores: Floats, labels: Floats) -> float:
    """Return the share of the pairs with different labels that the scores order in the same way; ties count half.

    For labels of two values it is the area under the ROC curve.
    """
    low, high = labels.min(), labels.max()
    upper = labels == high
    if not (upper | (labels == low)).all():
        net_concordant, _, different = concordance(list(zip(scores.tolist(), labels.tolist(), strict=True)))
        return (1 + net_concordant / different) / 2
    positives, negatives = int(upper.sum()), int((~upper).sum())
    rank_sum = float(stats.rankdata(scores)[upper].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


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


CLASS_METRICS = ("accuracy", "balanced_accuracy", "macro_f1", "kappa", "weighted_kappa", "alpha")
CORRELATIONS: tuple[Correlation, ...] = get_args(Correlation)


METRICS = ("pairwise_accuracy", "auroc", *CLASS_METRICS, "ece", "brier", *CORRELATIONS)


def metric(name: str, pairs: Pairs) -> float:
    """Return one of the `METRICS` of pairs, which must allow it (`null_reason`).

    ``pairwise_accuracy``: over the pairs of completions of one prompt with different labels, the share that the judge
    orders as people do; ties count half. ``auroc`` is the same over all pairs.
    """
    if name == "pairwise_accuracy":
        return (1 + pairs.net_concordant / pairs.different) / 2
    if name in CLASS_METRICS:
        return class_metric(name, pairs.confusion())
    if name in CORRELATIONS:
        return correlation(name, pairs.judge, pairs.people)
    measure = {"auroc": auroc, "ece": expected_calibration_error, "brier": brier}[name]
    return measure(pairs.judge, pairs.people)


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
    sample: Sample, names: Sequence[str] = METRICS, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Estimate]:
    """Return the metrics by name, each with its interval; without intervals if ``resamples`` is 0."""
    estimates, _ = mean_metrics([sample], names, resamples=resamples, seed=seed)
    for name in names:
        if (reason := null_reason(name, sample.pairs)) is not None:
            estimates[name] = Estimate(None, null_reason=reason)
    return estimates


def mean_metrics(
    samples: Sequence[Sample],
    names: Sequence[str] = METRICS,
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

    def measure(drawn: Ints) -> dict[str, float]:
        times, found = Counter(prompts[drawn].tolist()), dict[str, float]()
        pairs = {n: samples[n].drawn(times) for n in used}
        for name, numbers in having.items():
            values = [metric(name, pairs[n]) for n in numbers if null_reason(name, pairs[n]) is None]
            if values:
                found[name] = sum(values) / len(values)
        return found

    none = Estimate(None, null_reason="no criterion has an estimate")
    estimates = bootstrap(measure, prompts, resamples=resamples, seed=seed)
    return {name: estimates.get(name, none) for name in names}, {name: len(numbers) for name, numbers in having.items()}


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

    def alpha(rows: Ints) -> dict[str, float]:
        drawn, domain = classes[:, rows], list(range(len(levels)))
        if np.nanmin(drawn) == np.nanmax(drawn):
            return {}
        scale = "nominal" if len(levels) == 2 else "ordinal"
        return {"alpha": float(krippendorff.alpha(drawn, level_of_measurement=scale, value_domain=domain))}

    return bootstrap(alpha, among, resamples=resamples, seed=seed)["alpha"]


MAX_DISAGREEMENTS = 20
POOLED = "all criteria, pooled"
_NOT_BETWEEN_PEOPLE = ("pairwise_accuracy", "auroc", "ece", "brier", "alpha")


@dataclass(frozen=True, slots=True)
class CriterionAgreement:
    """The metrics of one criterion, of all pooled, or of the reward.

    ``excluded`` counts labels by reason. ``confusion`` counts [people's level, judge's level]; ``between_levels`` the
    labels that are not at a level of the scale and count there as the closest one. ``text`` is the criterion's.
    """

    name: str
    pairs: int
    excluded: dict[str, int]
    metrics: dict[str, Estimate]
    levels: tuple[float, ...] = ()
    confusion: list[list[int]] = field(default_factory=list)
    between_levels: int = 0
    annotator_pairs: int = 0
    inter_annotator: dict[str, Estimate] = field(default_factory=dict)
    text: str | None = None


@dataclass(frozen=True, slots=True)
class MeanAgreement:
    """The mean of each metric over the criteria that have an estimate of it; ``criteria`` has their number."""

    metrics: dict[str, Estimate]
    criteria: dict[str, int]
    inter_annotator: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A label whose level is not that of the judge's verdict."""

    completion_id: int
    completion_external_id: str | None
    criterion: str
    annotator: str
    label: float
    judge: float
    note: str | None
    rationale: str | None


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """The agreement of a judge.

    ``mean`` is over criteria, ``pooled`` over the pairs of all criteria, and ``reward`` the agreement of its rewards
    with ``overall`` labels, if there are any.
    """

    judge: str
    calibrated: bool | None
    labels: int
    annotators: int
    mean: MeanAgreement
    pooled: CriterionAgreement
    criteria: list[CriterionAgreement]
    worst: list[Disagreement]
    reward: CriterionAgreement | None = None


def judge_value(judge: Judge, row: JudgedLabel) -> tuple[float | None, str | None]:
    """Return what the judge says of a labelled criterion, and why this label is excluded; None if it is not.

    It is the judge's (calibrated) probability if it has one, else its value; None without one, or of a check.
    """
    verdict, reason = row.verdict, None
    if row.label.value is None:
        reason = "label without a value"
    elif row.criterion is not None and row.criterion.check:
        reason = "decided by a check"
    elif verdict is None or verdict.outcome != "scored":
        reason = "not judged" if verdict is None else verdict.outcome
    if verdict is None or verdict.value is None or row.criterion is None or row.criterion.check:
        return None, reason
    if verdict.probability is None or judge.threshold is None:
        return verdict.value, reason
    calibration = judge.calibration
    return calibration.value(row.criterion, verdict.probability) if calibration else verdict.probability, reason


def agreement_report(
    judge: Judge,
    rows: Sequence[JudgedLabel],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: OnProgress = lambda done, total, note: None,
) -> AgreementReport:
    """Return the judge's agreement with these labels."""
    on_criteria = [row for row in rows if row.criterion is not None]
    by_question: dict[str, list[JudgedLabel]] = defaultdict(list)
    for row in on_criteria:
        by_question[row.question].append(row)
    ordered = sorted(by_question.values(), key=lambda members: (-len(members), members[0].label.criterion))
    draws = {"resamples": resamples, "seed": seed}
    groups, samples = [], []
    for done, members in enumerate([on_criteria, *ordered]):
        name = members[0].label.criterion if done else POOLED
        on_progress(done, len(ordered) + 2, name)
        group, both = criterion_agreement(judge, members, METRICS, name=name, **draws)
        groups.append(replace(group, text=members[0].criterion.text if done and members[0].criterion else None))
        samples.append(both)
    on_progress(len(ordered) + 1, len(ordered) + 2, "mean over criteria")
    between = [name for name in METRICS if name not in _NOT_BETWEEN_PEOPLE]
    of_judge, counts = mean_metrics([one for one, _ in samples[1:]], METRICS, **draws)
    of_people, _ = mean_metrics([one for _, one in samples[1:]], between, **draws)
    known = {name: one for name, one in of_people.items() if one.value is not None}
    overall = [row for row in rows if row.label.criterion == OVERALL]
    reward = criterion_agreement(judge, overall, OVERALL_METRICS, name="reward", **draws)[0] if overall else None
    on_progress(len(ordered) + 2, len(ordered) + 2, "")
    return AgreementReport(
        judge=judge.name,
        calibrated=judge.calibrated,
        labels=len(rows),
        annotators=len({row.label.annotator for row in rows}),
        mean=MeanAgreement(of_judge, counts, known),
        pooled=groups[0],
        criteria=groups[1:],
        worst=_largest_disagreements(judge, on_criteria),
        reward=reward,
    )


def criterion_agreement(
    judge: Judge, rows: Sequence[JudgedLabel], metrics: Sequence[str], *, name: str = "", **draws: int
) -> tuple[CriterionAgreement, tuple[Sample, Sample]]:
    """Return the judge's agreement with labels on one question, its pairs, and those of people among themselves.

    Args:
        judge: The judge.
        rows: The labels; with `OVERALL_METRICS`, overall ones, which are compared with rewards.
        metrics: Some of the `METRICS`.
        name: By default that of the criterion.
        draws: ``resamples`` and ``seed`` of the bootstrap.
    """
    if metrics is OVERALL_METRICS:
        values = [row.reward for row in rows]
        excluded = Counter("no reward" for row in rows if row.reward is None or row.label.value is None)
    else:
        values = [judge_value(judge, row)[0] for row in rows]
        excluded = Counter(reason for row in rows if (reason := judge_value(judge, row)[1]) is not None)
    scales = {levels_of(row.criterion.scale) for row in rows if row.criterion is not None}
    levels = scales.pop() if len(scales) == 1 else (0.0, 1.0)  # different scales: met or not met
    levels = TENTHS if metrics is OVERALL_METRICS else levels
    used = [(row, value) for row, value in zip(rows, values, strict=True) if None not in (value, row.label.value)]
    judged, people = [value or 0.0 for _, value in used], [row.label.value or 0.0 for row, _ in used]
    decided = [row.verdict.value if row.verdict else None for row, _ in used]
    classified = [value if own is None else own for value, own in zip(judged, decided, strict=True)]
    pairs = Pairs.of(judged, people, levels, classified)
    sample = Sample.of(pairs, [row.prompt_id for row, _ in used], _pair_counts(used))
    by_thing: dict[tuple[int, str], list[JudgedLabel]] = defaultdict(list)
    for row in rows:
        if row.label.value is not None:
            by_thing[row.completion_id, row.question].append(row)
    shared = [labelled for labelled in by_thing.values() if len(labelled) > 1]
    annotators, inter_annotator = _inter_annotator(shared, levels, metrics, **draws)
    classes = used and metrics is not OVERALL_METRICS
    group = CriterionAgreement(
        name=name or rows[0].label.criterion,
        pairs=len(used),
        excluded=dict(excluded),
        metrics=estimate_metrics(sample, metrics, **draws),
        levels=pairs.levels,
        confusion=pairs.confusion().tolist() if classes else [],
        between_levels=pairs.between_levels() if classes else 0,
        annotator_pairs=len(annotators.prompts) // 2,
        inter_annotator=inter_annotator,
    )
    return group, (sample, annotators)


def _pair_counts(used: Iterable[tuple[JudgedLabel, Any]]) -> dict[int, tuple[int, int]]:
    """Return (net_concordant, different) pairs of completions by prompt, as of `Pairs`.

    A pair has one question. If several people labelled a completion, their mean is its label.
    """
    groups: dict[tuple[int, str], dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row, value in used:
        groups[row.prompt_id, row.question][row.completion_id].append((value, row.label.value or 0.0))
    counts: dict[int, tuple[int, int]] = {}
    for (prompt_id, _), by_completion in groups.items():
        labels = [(each[0][0], round(fmean(label for _, label in each), 12)) for each in by_completion.values()]
        net_concordant, _, different = concordance(labels)
        before = counts.get(prompt_id, (0, 0))
        counts[prompt_id] = (before[0] + net_concordant, before[1] + different)
    return counts


def _inter_annotator(
    shared: Sequence[Sequence[JudgedLabel]], levels: Sequence[float], metrics: Sequence[str], **draws: int
) -> tuple[Sample, dict[str, Estimate]]:
    """Return each two labels of one thing, both ways round, and their metrics."""
    both = [(a, b) for labelled in shared for a, b in permutations(labelled, 2)]
    pairs = Pairs.of([a.label.value or 0.0 for a, _ in both], [b.label.value or 0.0 for _, b in both], levels)
    sample = Sample.of(pairs, [a.prompt_id for a, _ in both])
    if not shared:
        return sample, {}
    names = [name for name in metrics if name not in _NOT_BETWEEN_PEOPLE]
    estimates = estimate_metrics(sample, names, **draws)
    people = {name: n for n, name in enumerate(sorted({row.label.annotator for each in shared for row in each}))}
    matrix = np.full((len(people), len(shared)), np.nan)
    for thing, labelled in enumerate(shared):
        for row in labelled:
            matrix[people[row.label.annotator], thing] = row.label.value
    prompts = [labelled[0].prompt_id for labelled in shared]
    return sample, estimates | {"alpha": inter_annotator_alpha(matrix, levels, prompts, **draws)}


def _largest_disagreements(judge: Judge, rows: Iterable[JudgedLabel]) -> list[Disagreement]:
    """Return the labels whose level is not that of the judge's verdict, as in the confusion, the farthest first."""
    found = []
    for row in rows:
        (value, _), label, verdict = judge_value(judge, row), row.label, row.verdict
        if value is None or label.value is None or verdict is None or row.criterion is None:
            continue
        levels = nearest_level(np.array([verdict.value, label.value], float), levels_of(row.criterion.scale))
        if levels[0] != levels[1]:
            texts = (label.note, verdict.rationale)
            names = (row.completion_id, row.completion_external_id, label.criterion, label.annotator)
            found.append(Disagreement(*names, label.value, value, *texts))
    return sorted(found, key=lambda one: -abs(one.label - one.judge))[:MAX_DISAGREEMENTS]
