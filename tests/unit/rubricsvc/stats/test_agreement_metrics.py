"""Metrics of the agreement report beside scikit-learn and SciPy, and on judges whose skill is known."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.verdict import JudgedLabel, Label, Verdict
from rubricsvc.stats.agreement import AgreementReport, Sample, agreement_report, estimate_metrics, metric

JUDGE = Judge(name="j", model="m")
EXACT = 1e-9


def label(prompt: int, completion: int, key: str, values: tuple[float, float], annotator: str = "ann") -> JudgedLabel:
    """Return a label beside a verdict; ``values`` are the person's and the judge's."""
    value, judge = values
    criterion = Criterion(key=key, text=f"Says {key}.")
    verdicts = {key: Verdict.scored(key, judge)}
    given = Label(criterion=key, annotator=annotator, value=value)
    return JudgedLabel(completion, prompt, 1, given, criterion, verdicts)


def value_of(report: AgreementReport, name: str) -> float:
    value = report.mean.metrics[name].value
    assert value is not None
    return value


@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.0, 0.3, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0)])
def test_metrics_equal_those_of_reference_libraries(levels: tuple[float, ...]) -> None:
    """Also where a level is not used by one side, or by none."""
    for used in (2, 3, 5):
        random = np.random.default_rng(len(levels) * 10 + used)
        people = np.asarray(levels)[random.integers(0, min(used, len(levels)), 60)]
        judge = np.clip(people + random.normal(0, 0.4, 60), 0, 1)
        judge[:10] = judge[10:20]  # ties
        sample = Sample.of(judge.tolist(), people.tolist(), range(60), levels)
        a, b, labels = sample.people_class, sample.judge_class, list(range(len(levels)))
        expected = {
            "accuracy": metrics.accuracy_score(a, b),
            "weighted_kappa": metrics.cohen_kappa_score(a, b, labels=labels, weights="quadratic"),
            "spearman": stats.spearmanr(judge, people).statistic,
        }
        if len(set(people)) == 2:
            expected["auroc"] = metrics.roc_auc_score(people == people.max(), judge)
        for name, value in expected.items():
            assert metric(name, sample) == pytest.approx(value, abs=EXACT), name


def test_auroc_takes_graded_labels_whole() -> None:
    random = np.random.default_rng(1)
    people = random.integers(0, 5, 80) / 4
    judge = np.round(np.clip(people + random.normal(0, 0.3, 80), 0, 1), 1)
    different = [(i, j) for i, j in combinations(range(80), 2) if people[i] != people[j]]
    agreeing = sum(np.sign(judge[i] - judge[j]) == np.sign(people[i] - people[j]) for i, j in different)
    tied = sum(judge[i] == judge[j] for i, j in different)
    estimates = estimate_metrics([Sample.of(judge.tolist(), people.tolist(), range(80))], resamples=30)
    assert estimates["auroc"].value == pytest.approx((agreeing + tied / 2) / len(different), abs=EXACT)
    spearman, kappa = estimates["spearman"], metrics.cohen_kappa_score(people >= 0.5, judge >= 0.5)
    assert spearman.value == pytest.approx(stats.spearmanr(judge, people).statistic, abs=EXACT)
    assert spearman.low is not None
    assert estimates["weighted_kappa"].value == pytest.approx(kappa, abs=EXACT)


def test_mean_over_criteria_gives_no_credit_for_base_rates() -> None:
    """A judge that gives every completion the base rate of the criterion, and one that sees the completion."""
    random = np.random.default_rng(2)
    rates = {f"c{n}": rate for n, rate in enumerate((0.05, 0.1, 0.2, 0.8, 0.9, 0.95))}
    blind, seeing = [], []
    for prompt in range(80):
        for completion in (2 * prompt, 2 * prompt + 1):
            for key, rate in rates.items():
                met = float(random.random() < rate)
                blind.append(label(prompt, completion, key, (met, rate)))
                seeing.append(label(prompt, completion, key, (met, 0.4 * rate + 0.3 * met)))
    report = agreement_report(JUDGE, blind, resamples=40)
    pooled = report.pooled.metrics["auroc"]
    assert pooled.value is not None and pooled.low is not None and pooled.low > 0.85
    assert value_of(report, "auroc") == 0.5 and report.mean.criteria_with_value["auroc"] == len(rates)
    assert value_of(report, "pairwise_accuracy") == report.pooled.metrics["pairwise_accuracy"].value == 0.5
    assert value_of(report, "weighted_kappa") == 0.0 < (report.pooled.metrics["weighted_kappa"].value or 0.0)
    report = agreement_report(JUDGE, seeing, resamples=40)
    assert value_of(report, "auroc") == value_of(report, "pairwise_accuracy") == 1.0


def test_pairwise_accuracy_compares_completions_of_one_prompt_and_criterion() -> None:
    """Each pair has one prompt and one criterion; several people's labels of a completion are averaged."""
    random = np.random.default_rng(4)
    rows, by_group = [], {}
    for prompt in range(12):
        for key in ("a", "b"):
            for n in range(4):
                labels = random.integers(0, 3, 2) / 2
                judge = float(np.round(random.random(), 1))
                by_group.setdefault((prompt, key), []).append((labels.mean(), judge))
                completion = prompt * 4 + n
                for value, who in zip(labels.tolist(), ("ann", "bob"), strict=True):
                    rows.append(label(prompt, completion, key, (value, judge), annotator=who))
    right = total = 0.0
    for group in by_group.values():
        for (x, a), (y, b) in combinations(group, 2):
            total += x != y
            right += 0.0 if x == y else 0.5 if a == b else float((a > b) == (x > y))
    estimate = agreement_report(JUDGE, rows, resamples=40).pooled.metrics["pairwise_accuracy"]
    assert estimate.value == pytest.approx(right / total, abs=EXACT)
    assert estimate.low is not None and estimate.high is not None and estimate.low < estimate.value < estimate.high
    alone = [row for row in rows if row.completion_id % 4 == 0]
    assert agreement_report(JUDGE, alone, resamples=0).pooled.metrics["pairwise_accuracy"].null_reason
