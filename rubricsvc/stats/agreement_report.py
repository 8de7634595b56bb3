"""Agreement of a judge with people's labels: for all criteria, for each, and where they differ most.

Each label is a pair with the judge's verdict on the same. If several people labelled the same, each two of them, both
ways round, give the inter-annotator metrics (alpha is computed over all of them), the most that can be expected of a
judge. Labels without a value and criteria that failed, were abstained on or not judged are counted and excluded. Needs
the extra ``judging``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.label import OVERALL, JudgedLabel
from rubricsvc.stats import RESAMPLES, OnProgress
from rubricsvc.stats.agreement import (
    CORRELATIONS,
    METRICS,
    TENTHS,
    Pairs,
    estimate_metrics,
    inter_annotator_alpha,
    levels_of,
)

MAX_DISAGREEMENTS = 20
ALL_CRITERIA = "all criteria"


@dataclass(frozen=True, slots=True)
class CriterionAgreement:
    """The metrics of one criterion, of all, or of the reward.

    ``excluded`` counts labels by reason. ``confusion`` counts [people's level, judge's level].
    """

    name: str
    pairs: int
    excluded: dict[str, int]
    metrics: dict[str, Estimate]
    levels: tuple[float, ...] = ()
    confusion: list[list[int]] = field(default_factory=list)
    annotator_pairs: int = 0
    inter_annotator: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A label far from the judge's value."""

    completion_id: int
    criterion: str
    annotator: str
    label: float
    judge: float
    note: str | None
    rationale: str | None


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """The agreement of a judge; ``reward`` is that of its rewards with ``overall`` labels, if there are any."""

    judge: str
    calibrated: bool | None
    labels: int
    annotators: int
    overall: CriterionAgreement
    criteria: list[CriterionAgreement]
    worst: list[Disagreement]
    reward: CriterionAgreement | None = None


def judge_value(judge: Judge, row: JudgedLabel) -> float | None:
    """Return the judge's (calibrated) probability if it has one, else its value; None without a value."""
    verdict = row.verdict
    if verdict is None or verdict.value is None or row.criterion is None:
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
    by_criterion: dict[str, list[JudgedLabel]] = defaultdict(list)
    for row in on_criteria:
        by_criterion[row.label.criterion].append(row)
    ordered = sorted(by_criterion.items(), key=lambda item: (-len(item[1]), item[0]))
    bootstrap = {"resamples": resamples, "seed": seed}
    groups = []
    for done, (name, members) in enumerate([(ALL_CRITERIA, on_criteria), *ordered]):
        on_progress(done, len(ordered) + 1, name)
        values = [judge_value(judge, row) for row in members]
        excluded = Counter(filter(None, map(_exclusion_reason, members)))
        groups.append(_agreement(name, members, values, excluded, tuple(METRICS), **bootstrap))
    on_progress(len(ordered) + 1, len(ordered) + 1, "")
    overall = [row for row in rows if row.label.criterion == OVERALL]
    rewards = [row.reward for row in overall]
    unknown = Counter("no reward" for row in overall if row.reward is None or row.label.value is None)
    return AgreementReport(
        judge=judge.name,
        calibrated=judge.calibrated,
        labels=len(rows),
        annotators=len({row.label.annotator for row in rows}),
        overall=groups[0],
        criteria=groups[1:],
        worst=_largest_disagreements(judge, on_criteria),
        reward=_agreement("reward", overall, rewards, unknown, CORRELATIONS, **bootstrap) if overall else None,
    )


def _agreement(
    name: str,
    rows: Sequence[JudgedLabel],
    values: Sequence[float | None],
    excluded: Mapping[str, int],
    metrics: Sequence[str],
    **bootstrap: int,
) -> CriterionAgreement:
    levels = TENTHS if metrics is CORRELATIONS else _shared_levels(rows)
    used = [(row, value) for row, value in zip(rows, values, strict=True) if None not in (value, row.label.value)]
    judged, people = [value or 0.0 for _, value in used], [row.label.value or 0.0 for row, _ in used]
    decided = [row.verdict.value if row.verdict else None for row, _ in used]
    classified = [value if own is None else own for value, own in zip(judged, decided, strict=True)]
    pairs = Pairs.of(judged, people, levels, classified)
    annotator_pairs, inter_annotator = _inter_annotator(rows, levels, metrics, **bootstrap)
    return CriterionAgreement(
        name=name,
        pairs=len(used),
        excluded=dict(excluded),
        metrics=estimate_metrics(pairs, [row.prompt_id for row, _ in used], metrics, **bootstrap),
        levels=pairs.levels,
        confusion=pairs.confusion() if used and metrics is not CORRELATIONS else [],
        annotator_pairs=annotator_pairs,
        inter_annotator=inter_annotator,
    )


def _shared_levels(rows: Iterable[JudgedLabel]) -> tuple[float, ...]:
    """Return the levels that the rows share; criteria on different scales are compared as met or not met."""
    scales = {levels_of(row.criterion.scale) for row in rows if row.criterion is not None}
    return scales.pop() if len(scales) == 1 else (0.0, 1.0)


def _exclusion_reason(row: JudgedLabel) -> str | None:
    if row.label.value is None:
        return "label without a value"
    if row.verdict is None:
        return "not judged"
    return None if row.verdict.outcome == "scored" else row.verdict.outcome


def _inter_annotator(
    rows: Iterable[JudgedLabel], levels: Sequence[float], metrics: Sequence[str], **bootstrap: int
) -> tuple[int, dict[str, Estimate]]:
    """Return how many pairs of people labelled the same thing, and their metrics."""
    by_thing: dict[tuple[int, int, str], list[JudgedLabel]] = defaultdict(list)
    for row in rows:
        if row.label.value is not None:
            by_thing[row.completion_id, row.rubric_id, row.label.criterion].append(row)
    shared = [labelled for labelled in by_thing.values() if len(labelled) > 1]
    if not shared:
        return 0, {}
    both = [(a, b) for labelled in shared for a, b in permutations(labelled, 2)]
    pairs = Pairs.of([a.label.value or 0.0 for a, _ in both], [b.label.value or 0.0 for _, b in both], levels)
    names = [name for name in metrics if name not in ("auroc", "ece", "brier", "alpha")]
    estimates = estimate_metrics(pairs, [a.prompt_id for a, _ in both], names, **bootstrap)
    people = {name: n for n, name in enumerate(sorted({row.label.annotator for each in shared for row in each}))}
    matrix = np.full((len(people), len(shared)), np.nan)
    for thing, labelled in enumerate(shared):
        for row in labelled:
            matrix[people[row.label.annotator], thing] = row.label.value
    prompts = [labelled[0].prompt_id for labelled in shared]
    return len(both) // 2, estimates | {"alpha": inter_annotator_alpha(matrix, levels, prompts, **bootstrap)}


def _largest_disagreements(judge: Judge, rows: Iterable[JudgedLabel]) -> list[Disagreement]:
    disagreements = [
        Disagreement(
            completion_id=row.completion_id,
            criterion=row.label.criterion,
            annotator=row.label.annotator,
            label=row.label.value,
            judge=value,
            note=row.label.note,
            rationale=row.verdict.rationale if row.verdict else None,
        )
        for row in rows
        if row.label.value is not None and (value := judge_value(judge, row)) is not None
    ]
    return sorted(disagreements, key=lambda one: -abs(one.label - one.judge))[:MAX_DISAGREEMENTS]
