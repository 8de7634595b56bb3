"""Agreement of a judge with people, on plain arrays. Needs the extra ``judging``.

Arrays are [N], an entry for each pair of a judge's value and a label of the same thing, in [0, 1]. Metrics of classes
take the closest level of the scale (binary: met from 0.5 on), metrics of ranks and of probabilities the values as they
are. Intervals are 95 % percentile intervals of a bootstrap that draws whole prompts, since values on one prompt are
correlated.

In a report, each label is a pair with the judge's verdict on the same. The mean over criteria comes first: pooled pairs
favour a judge that only repeats how often each is met. If several people labelled the same, each two of them, both ways
round, give the inter-annotator metrics, the most that can be expected of a judge.
Labels without a value and criteria that failed, were abstained on or not judged are counted and excluded.

Metrics are fast enough for thousands of bootstrap draws; tests compare each with scikit-learn or SciPy.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from statistics import fmean

import numpy as np
from scipy import stats

from rubricsvc.core.estimate import Estimate
from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Numeric, Scale, scale_values
from rubricsvc.core.verdict import OVERALL, JudgedLabel
from rubricsvc.stats import MIN_PAIRS, RESAMPLES
from rubricsvc.stats.intervals import Floats, Ints, bootstrap
from rubricsvc.stats.paired import correlation
from rubricsvc.stats.ranking import concordance
from rubricsvc.stats.reports import AgreementReport, CriterionAgreement, Disagreement, Dispute, MeanAgreement

TENTHS = tuple(step / 10 for step in range(11))
BINS = 10


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
    return float(np.abs(np.bincount(which, outcome - probability)).sum() / len(probability))


def levels_of(scale: Scale) -> tuple[float, ...]:
    """Return the levels of a scale in [0, 1], ascending; of a numeric one its whole steps, or eleven points."""
    if not isinstance(scale, Numeric):
        return scale_values(scale)
    width = scale.high - scale.low
    steps = int(width) if width.is_integer() and width <= 10 else 10
    return tuple(step / steps for step in range(steps + 1))


def nearest_level(values: Floats | Sequence[float], levels: Sequence[float]) -> Ints:
    """Return the index of the level closest to each value; halfway rounds up. Levels ascend."""
    middles = (np.asarray(levels)[1:] + np.asarray(levels)[:-1]) / 2
    return np.searchsorted(middles, np.asarray(values, float), side="right").astype(np.int64)


def pair_counts(values: Iterable[tuple[int, Hashable, Hashable, float, float]]) -> dict[int, tuple[int, int]]:
    """Return (net concordant, different) pairs of completions by prompt: ``different`` have different labels.

    ``values`` has prompt, question, completion, the judge's value and the label. A pair has one question. If several
    people labelled a completion, their mean is its label.
    """
    groups: dict[tuple[int, Hashable], dict[Hashable, list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for prompt, question, completion, value, label in values:
        groups[prompt, question][completion].append((value, label))
    counts: dict[int, tuple[int, int]] = {}
    for (prompt, _), by_completion in groups.items():
        labels = [(each[0][0], round(fmean(label for _, label in each), 12)) for each in by_completion.values()]
        net_concordant, _, different = concordance(labels)
        before = counts.get(prompt, (0, 0))
        counts[prompt] = (before[0] + net_concordant, before[1] + different)
    return counts


@dataclass(frozen=True, slots=True)
class Sample:
    """A judge's values beside people's, with the prompt of each.

    ``levels`` are those of the scale, ascending; ``judge_class`` and ``people_class`` the closest ones. ``counts`` are
    the pairs of completions by prompt, as of `pair_counts`.
    """

    judge: Floats
    people: Floats
    judge_class: Ints
    people_class: Ints
    levels: tuple[float, ...]
    prompts: Ints
    counts: Mapping[int, tuple[int, int]]

    @classmethod
    def of(
        cls,
        judge: Sequence[float],
        people: Sequence[float],
        prompts: Sequence[int],
        levels: Sequence[float] = (0.0, 1.0),
        *,
        decided: Sequence[float] | None = None,
        counts: Mapping[int, tuple[int, int]] | None = None,
    ) -> "Sample":
        """Return the sample of these values; a judge with its own threshold is classified by ``decided``."""
        ascending = tuple(sorted(levels))
        classes = nearest_level(judge if decided is None else decided, ascending), nearest_level(people, ascending)
        values = np.asarray(judge, float), np.asarray(people, float)
        return cls(*values, *classes, ascending, np.asarray(prompts, np.int64), counts or {})

    def drawn(self, times: Mapping[int, int]) -> "Sample":
        """Return the sample with the pairs of each prompt as often as it was drawn."""
        rows = np.repeat(np.arange(len(self.prompts)), [times.get(prompt, 0) for prompt in self.prompts.tolist()])
        values, classes = (self.judge[rows], self.people[rows]), (self.judge_class[rows], self.people_class[rows])
        counts = {
            prompt: (times.get(prompt, 0) * net, times.get(prompt, 0) * n) for prompt, (net, n) in self.counts.items()
        }
        return Sample(*values, *classes, self.levels, self.prompts[rows], counts)

    def confusion(self) -> Ints:
        """Return counts [levels of people, levels of the judge], also of levels that neither used."""
        size = len(self.levels)
        return np.bincount(self.people_class * size + self.judge_class, minlength=size**2).reshape(size, size)


CLASS_METRICS = ("accuracy", "weighted_kappa")
METRICS = ("pairwise_accuracy", "auroc", *CLASS_METRICS, "ece", "brier", "spearman")


def metric(name: str, sample: Sample) -> float:
    """Return one of the `METRICS` of a sample, which must allow it (`null_reason`).

    ``pairwise_accuracy``: over the pairs of completions of one prompt with different labels, the share that the judge
    orders as people do; ties count half. ``auroc`` is the same over all pairs. ``weighted_kappa`` is Cohen's, weighted
    by the squared distance of the levels.
    """
    judge, people = sample.judge, sample.people
    match name:
        case "pairwise_accuracy":
            net_concordant, different = (sum(one[n] for one in sample.counts.values()) for n in (0, 1))
            return (1 + net_concordant / different) / 2
        case "accuracy":
            return float((sample.judge_class == sample.people_class).mean())
        case "weighted_kappa":
            counts, levels = sample.confusion(), np.arange(len(sample.levels))
            distances = np.subtract.outer(levels, levels) ** 2
            by_chance = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
            return float(1 - (distances * counts).sum() / (distances * by_chance).sum())
        case "auroc":
            return auroc(judge, people)
        case "ece":
            return expected_calibration_error(judge, people)
        case "brier":
            return float(np.mean((judge - people) ** 2))
        case _:
            return correlation("spearman", judge, people)


BETWEEN_PEOPLE = (*CLASS_METRICS, "spearman")
OVERALL_METRICS = ("pairwise_accuracy", "spearman")  # metrics of values without classes


def null_reason(name: str, sample: Sample) -> str | None:
    """Return why a sample has no such metric; None if it has."""
    two_values = len(sample.levels) == 2
    if len(sample.judge) < MIN_PAIRS:
        return f"{len(sample.judge)} pairs; an estimate needs {MIN_PAIRS}"
    if name in ("ece", "brier") and not two_values:
        return "only on a scale of two levels"
    if name == "spearman" and two_values and len(np.unique(sample.people)) <= 2:
        return "only for labels of more than two values"
    if name in ("auroc", "weighted_kappa", "spearman") and not np.ptp(sample.people):
        return "all labels are the same"
    if name == "weighted_kappa" and not np.ptp(sample.people_class):
        return "all labels are closest to the same level"
    if name == "spearman" and not np.ptp(sample.judge):
        return "all values of the judge are the same"
    if name == "pairwise_accuracy" and sum(different for _, different in sample.counts.values()) < MIN_PAIRS:
        return f"fewer than {MIN_PAIRS} pairs of completions of one prompt have different labels"
    return None


def estimate_metrics(
    samples: Sequence[Sample], names: Sequence[str] = METRICS, *, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """Return by name the mean of each metric over the samples that have it, with its interval; each counts alike.

    The bootstrap draws prompts for all samples together; there are no intervals if ``resamples`` is 0.
    """
    having = {name: [n for n, one in enumerate(samples) if null_reason(name, one) is None] for name in names}
    used = sorted({n for numbers in having.values() for n in numbers})
    prompts = np.unique(np.concatenate([samples[n].prompts for n in used])) if used else np.array([], np.int64)

    def measure(rows: Ints) -> dict[str, float]:
        times, found = Counter(prompts[rows].tolist()), dict[str, float]()
        drawn = {n: samples[n].drawn(times) for n in used}
        for name, numbers in having.items():
            values = [metric(name, drawn[n]) for n in numbers if null_reason(name, drawn[n]) is None]
            if values:
                found[name] = fmean(values)
        return found

    estimates = bootstrap(measure, prompts, resamples=resamples)
    for name in names:
        reason = null_reason(name, samples[0]) if len(samples) == 1 else "no criterion has an estimate"
        estimates.setdefault(name, Estimate(None, null_reason=reason))
    return {name: estimates[name] for name in names}


MAX_DISAGREEMENTS = 20
POOLED = "all criteria, pooled"


def judge_value(judge: Judge | None, row: JudgedLabel) -> tuple[float | None, str | None]:
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
    if judge is None or verdict is None or verdict.value is None or row.criterion is None or row.criterion.check:
        return None, reason
    if verdict.probability is None or judge.threshold is None:
        return verdict.value, reason
    calibration = judge.calibration
    return calibration.value(row.criterion, verdict.probability) if calibration else verdict.probability, reason


def agreement_report(
    judge: Judge | None, rows: Sequence[JudgedLabel], *, resamples: int = RESAMPLES
) -> AgreementReport:
    """Return the judge's agreement with these labels, or people's with each other; the most labelled criteria first."""
    on_criteria = [row for row in rows if row.criterion is not None]
    by_question: dict[str, list[JudgedLabel]] = defaultdict(list)
    for row in on_criteria:
        by_question[row.question].append(row)
    ordered = sorted(by_question.values(), key=lambda members: (-len(members), members[0].label.criterion))
    pooled, _ = criterion_agreement(judge, on_criteria, name=POOLED, resamples=resamples)
    groups, samples = [], []
    for members in ordered:
        group, both = criterion_agreement(judge, members, resamples=resamples)
        groups.append(group.model_copy(update={"text": members[0].criterion.text if members[0].criterion else None}))
        samples.append(both)
    of_judge, of_people = ([one[side] for one in samples] for side in (0, 1))
    among = estimate_metrics(of_people, BETWEEN_PEOPLE, resamples=resamples) if samples else {}
    worst = []
    for row in on_criteria:  # whose level is not that of the judge's verdict, as in the confusion
        (value, _), label, verdict = judge_value(judge, row), row.label, row.verdict
        if value is None or label.value is None or verdict is None or row.criterion is None:
            continue
        levels = nearest_level([verdict.value or 0.0, label.value], levels_of(row.criterion.scale))
        if levels[0] != levels[1]:
            given = {"annotator": label.annotator, "label": label.value, "note": label.note}
            found = {"criterion": label.criterion, "judge": value, "rationale": verdict.rationale}
            ids = {"completion_id": row.completion_id, "completion_external_id": row.completion_external_id}
            worst.append(Disagreement.model_validate(ids | given | found))
    overall, name = [row for row in rows if row.label.criterion == OVERALL], "reward" if judge else OVERALL
    reward = criterion_agreement(judge, overall, OVERALL_METRICS, name=name, resamples=resamples) if overall else None
    measured, names = (of_judge, METRICS) if judge else (of_people, BETWEEN_PEOPLE)
    return AgreementReport(
        judge=judge.name if judge else None,
        calibrated=judge.calibrated if judge else None,
        labels=len(rows),
        annotators=len({row.label.annotator for row in rows}),
        mean=MeanAgreement(
            metrics=estimate_metrics(of_judge, names if judge else (), resamples=resamples),
            criteria_with_value={name: sum(null_reason(name, one) is None for one in measured) for name in names},
            inter_annotator={name: one for name, one in among.items() if one.value is not None},
        ),
        pooled=pooled,
        criteria=tuple(groups),
        worst=tuple(sorted(worst, key=lambda one: -abs(one.label - one.judge))[:MAX_DISAGREEMENTS]),
        disputed=_disputed(rows),
        reward=reward[0] if reward else None,
    )


def _disputed(rows: Sequence[JudgedLabel]) -> tuple[Dispute, ...]:
    """Return the completions on which the labels of two people differ most, over all of their criteria."""
    given: dict[int, dict[str, list[JudgedLabel]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.label.value is not None:
            given[row.completion_id][row.question].append(row)
    found = []
    for id_, by_question in given.items():
        distances, labels = [], {}
        for each in by_question.values():
            values = {one.label.annotator: one.label.value or 0.0 for one in each}
            distances += [fmean(abs(a - b) for a, b in combinations(values.values(), 2))] if len(values) > 1 else []
            if len(set(values.values())) > 1:
                labels[each[0].label.criterion] = ", ".join(f"{who} {value:g}" for who, value in values.items())
        if labels:
            names = {"completion_id": id_, "completion_external_id": each[0].completion_external_id}
            counts = {"differ": len(labels), "of": len(distances), "distance": fmean(distances), "labels": labels}
            found.append(Dispute.model_validate(names | counts))
    return tuple(sorted(found, key=lambda one: -one.distance)[:MAX_DISAGREEMENTS])


def criterion_agreement(
    judge: Judge | None,
    rows: Sequence[JudgedLabel],
    metrics: Sequence[str] = METRICS,
    *,
    name: str = "",
    resamples: int = RESAMPLES,
) -> tuple[CriterionAgreement, tuple[Sample, Sample]]:
    """Return the judge's agreement with labels on one question, its pairs, and those of people among themselves.

    Args:
        judge: The judge; None for people among themselves only.
        rows: The labels; with `OVERALL_METRICS`, overall ones, which are compared with rewards.
        metrics: Some of the `METRICS`.
        name: By default that of the criterion.
        resamples: Draws of the bootstrap.
    """
    if is_overall := metrics is OVERALL_METRICS:
        values = [row.reward for row in rows]
        excluded = Counter("no reward" for row in rows if row.reward is None or row.label.value is None)
    else:
        values = [judge_value(judge, row)[0] for row in rows]
        excluded = Counter(reason for row in rows if (reason := judge_value(judge, row)[1]) is not None)
    scales = {levels_of(row.criterion.scale) for row in rows if row.criterion is not None}
    levels = scales.pop() if len(scales) == 1 else (0.0, 1.0)  # different scales: met or not met
    levels = TENTHS if is_overall else levels
    used = [
        (row, value, row.label.value)
        for row, value in zip(rows, values, strict=True)
        if value is not None and row.label.value is not None
    ]
    own = [row.verdict.value if row.verdict else None for row, *_ in used]
    sample = Sample.of(
        [value for _, value, _ in used],
        [label for *_, label in used],
        [row.prompt_id for row, *_ in used],
        levels,
        decided=[value if decided is None else decided for (_, value, _), decided in zip(used, own, strict=True)],
        counts=pair_counts(
            (row.prompt_id, row.question, row.completion_id, value, label) for row, value, label in used
        ),
    )
    by_thing: dict[tuple[int, str], list[tuple[JudgedLabel, float]]] = defaultdict(list)
    for row in rows:
        if row.label.value is not None:
            by_thing[row.completion_id, row.question].append((row, row.label.value))
    both = [(row.prompt_id, a, b) for each in by_thing.values() for (row, a), (_, b) in permutations(each, 2)]
    annotators = Sample.of([a for _, a, _ in both], [b for *_, b in both], [prompt for prompt, *_ in both], levels)
    among = [name for name in metrics if name in BETWEEN_PEOPLE] if both else []
    has_classes = used and not is_overall
    off_level = np.abs(np.asarray(sample.levels)[sample.people_class] - sample.people) > 1e-9
    group = CriterionAgreement(
        name=name or rows[0].label.criterion,
        pairs=len(used),
        excluded=dict(excluded) if judge else {},
        metrics=estimate_metrics([sample], metrics if judge else (), resamples=resamples),
        levels=sample.levels,
        confusion=tuple(map(tuple, sample.confusion().tolist())) if has_classes else (),
        between_levels=int(off_level.sum()) if has_classes else 0,
        annotator_pairs=len(annotators.prompts) // 2,
        inter_annotator=estimate_metrics([annotators], among, resamples=resamples),
    )
    return group, (sample, annotators)


MIN_LABELS = 30  # fewer labels of a judge, or findings of an audit, than this do not decide


def pooled_agreement(judge: Judge, rows: Sequence[JudgedLabel]) -> CriterionAgreement | None:
    """Return the agreement with labels of all criteria, pooled; None where fewer than `MIN_LABELS` were judged."""
    rows = [row for row in rows if row.criterion is not None]
    if len(rows) < MIN_LABELS:
        return None
    found, _ = criterion_agreement(judge, rows, ("pairwise_accuracy", "auroc", "ece"))
    return found if found.pairs >= MIN_LABELS else None
