"""Agreement of a judge with people's labels: the mean over criteria, each, all pooled, and where they differ most.

The mean over criteria comes first: pooled pairs favour a judge that only repeats how often each is met.

Each label is a pair with the judge's verdict on the same. If several people labelled the same, each two of them, both
ways round, give the inter-annotator metrics (alpha is computed over all of them), the most that can be expected of a
judge. Labels without a value and criteria that failed, were abstained on or not judged are counted and excluded. Needs
the extra ``judging``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from statistics import fmean
from typing import Any

import numpy as np

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import OVERALL, JudgedLabel
from rubricsvc.stats import RESAMPLES, OnProgress
from rubricsvc.stats.agreement import (
    METRICS,
    OVERALL_METRICS,
    TENTHS,
    Pairs,
    Sample,
    estimate_metrics,
    inter_annotator_alpha,
    levels_of,
    mean_metrics,
    nearest_level,
)
from rubricsvc.stats.ranking import concordance

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


def judge_value(judge: Judge, row: JudgedLabel) -> float | None:
    """Return the judge's (calibrated) probability if it has one, else its value; None without one, or of a check."""
    verdict = row.verdict
    if verdict is None or verdict.value is None or row.criterion is None or row.criterion.check:
        return None
    if verdict.probability is None or judge.threshold is None:
        return verdict.value
    calibration = judge.calibration
    return calibration.value(row.criterion, verdict.probability) if calibration else verdict.probability


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
    bootstrap = {"resamples": resamples, "seed": seed}
    groups, samples = [], []
    for done, members in enumerate([on_criteria, *ordered]):
        name = members[0].label.criterion if done else POOLED
        on_progress(done, len(ordered) + 2, name)
        values = [judge_value(judge, row) for row in members]
        excluded = Counter(filter(None, map(_exclusion_reason, members)))
        group, both = _agreement(name, members, values, excluded, tuple(METRICS), **bootstrap)
        groups.append(replace(group, text=members[0].criterion.text if done and members[0].criterion else None))
        samples.append(both)
    on_progress(len(ordered) + 1, len(ordered) + 2, "mean over criteria")
    mean = _mean(samples[1:], **bootstrap)
    overall = [row for row in rows if row.label.criterion == OVERALL]
    rewards = [row.reward for row in overall]
    unknown = Counter("no reward" for row in overall if row.reward is None or row.label.value is None)
    reward = _agreement("reward", overall, rewards, unknown, OVERALL_METRICS, **bootstrap)[0] if overall else None
    on_progress(len(ordered) + 2, len(ordered) + 2, "")
    return AgreementReport(
        judge=judge.name,
        calibrated=judge.calibrated,
        labels=len(rows),
        annotators=len({row.label.annotator for row in rows}),
        mean=mean,
        pooled=groups[0],
        criteria=groups[1:],
        worst=_largest_disagreements(judge, on_criteria),
        reward=reward,
    )


def criterion_agreement(
    judge: Judge, rows: Sequence[JudgedLabel], metrics: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> CriterionAgreement:
    """Return the judge's agreement with labels on one question, by some of the `METRICS`."""
    values = [judge_value(judge, row) for row in rows]
    excluded = Counter(filter(None, map(_exclusion_reason, rows)))
    name = rows[0].label.criterion
    return _agreement(name, rows, values, excluded, metrics, resamples=resamples, seed=seed)[0]


def _mean(samples: Sequence[tuple[Sample, Sample]], **bootstrap: int) -> MeanAgreement:
    between = [name for name in METRICS if name not in _NOT_BETWEEN_PEOPLE]
    estimates, criteria = mean_metrics([judge for judge, _ in samples], tuple(METRICS), **bootstrap)
    people, _ = mean_metrics([annotators for _, annotators in samples], between, **bootstrap)
    return MeanAgreement(estimates, criteria, {name: one for name, one in people.items() if one.value is not None})


def _agreement(
    name: str,
    rows: Sequence[JudgedLabel],
    values: Sequence[float | None],
    excluded: Mapping[str, int],
    metrics: Sequence[str],
    **bootstrap: int,
) -> tuple[CriterionAgreement, tuple[Sample, Sample]]:
    """Return the agreement, and the pairs of the judge and of people among themselves."""
    levels = TENTHS if metrics is OVERALL_METRICS else _shared_levels(rows)
    used = [(row, value) for row, value in zip(rows, values, strict=True) if None not in (value, row.label.value)]
    judged, people = [value or 0.0 for _, value in used], [row.label.value or 0.0 for row, _ in used]
    decided = [row.verdict.value if row.verdict else None for row, _ in used]
    classified = [value if own is None else own for value, own in zip(judged, decided, strict=True)]
    pairs = Pairs.of(judged, people, levels, classified)
    sample = Sample.of(pairs, [row.prompt_id for row, _ in used], _pair_counts(used))
    shared = _labelled_by_several(rows)
    annotators, inter_annotator = _inter_annotator(shared, levels, metrics, **bootstrap)
    classes = used and metrics is not OVERALL_METRICS
    group = CriterionAgreement(
        name=name,
        pairs=len(used),
        excluded=dict(excluded),
        metrics=estimate_metrics(sample, metrics, **bootstrap),
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


def _shared_levels(rows: Iterable[JudgedLabel]) -> tuple[float, ...]:
    """Return the levels that the rows share; criteria on different scales are compared as met or not met."""
    scales = {levels_of(row.criterion.scale) for row in rows if row.criterion is not None}
    return scales.pop() if len(scales) == 1 else (0.0, 1.0)


def _exclusion_reason(row: JudgedLabel) -> str | None:
    if row.label.value is None:
        return "label without a value"
    if row.criterion is not None and row.criterion.check:
        return "decided by a check"
    if row.verdict is None:
        return "not judged"
    return None if row.verdict.outcome == "scored" else row.verdict.outcome


def _labelled_by_several(rows: Iterable[JudgedLabel]) -> list[list[JudgedLabel]]:
    """Return the labels of each thing that several people labelled."""
    by_thing: dict[tuple[int, str], list[JudgedLabel]] = defaultdict(list)
    for row in rows:
        if row.label.value is not None:
            by_thing[row.completion_id, row.question].append(row)
    return [labelled for labelled in by_thing.values() if len(labelled) > 1]


def _inter_annotator(
    shared: Sequence[Sequence[JudgedLabel]], levels: Sequence[float], metrics: Sequence[str], **bootstrap: int
) -> tuple[Sample, dict[str, Estimate]]:
    """Return each two labels of one thing, both ways round, and their metrics."""
    both = [(a, b) for labelled in shared for a, b in permutations(labelled, 2)]
    pairs = Pairs.of([a.label.value or 0.0 for a, _ in both], [b.label.value or 0.0 for _, b in both], levels)
    sample = Sample.of(pairs, [a.prompt_id for a, _ in both])
    if not shared:
        return sample, {}
    names = [name for name in metrics if name not in _NOT_BETWEEN_PEOPLE]
    estimates = estimate_metrics(sample, names, **bootstrap)
    people = {name: n for n, name in enumerate(sorted({row.label.annotator for each in shared for row in each}))}
    matrix = np.full((len(people), len(shared)), np.nan)
    for thing, labelled in enumerate(shared):
        for row in labelled:
            matrix[people[row.label.annotator], thing] = row.label.value
    prompts = [labelled[0].prompt_id for labelled in shared]
    return sample, estimates | {"alpha": inter_annotator_alpha(matrix, levels, prompts, **bootstrap)}


def _largest_disagreements(judge: Judge, rows: Iterable[JudgedLabel]) -> list[Disagreement]:
    disagreements = [
        Disagreement(
            completion_id=row.completion_id,
            completion_external_id=row.completion_external_id,
            criterion=row.label.criterion,
            annotator=row.label.annotator,
            label=row.label.value,
            judge=value,
            note=row.label.note,
            rationale=row.verdict.rationale if row.verdict else None,
        )
        for row in rows
        if row.label.value is not None and (value := judge_value(judge, row)) is not None and _levels_differ(row)
    ]
    return sorted(disagreements, key=lambda one: -abs(one.label - one.judge))[:MAX_DISAGREEMENTS]


def _levels_differ(row: JudgedLabel) -> bool:
    """Whether label and verdict count as different levels, as in the confusion."""
    if row.criterion is None or row.verdict is None:
        return False
    judge, person = nearest_level(np.array([row.verdict.value, row.label.value], float), levels_of(row.criterion.scale))
    return bool(judge != person)
