"""Metrics on arrays small enough to check by hand, and inputs without an estimate."""

import numpy as np
import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import Check, Criterion
from rubricsvc.core.verdict import JudgedLabel, Label, Verdict
from rubricsvc.stats.agreement import METRICS, Sample, agreement_report, estimate_metrics, expected_calibration_error

BINARY = (0.0, 1.0)


def values_of(judge: list[float], people: list[float], levels: tuple[float, ...] = BINARY) -> dict[str, float | None]:
    estimates = estimate_metrics([Sample.of(judge, people, range(len(judge)), levels)], resamples=0)
    return {name: estimate.value for name, estimate in estimates.items()}


def test_metrics_of_a_binary_judge() -> None:
    """Three true positives, one false negative, one false positive, three true negatives."""
    judge, people = [0.9, 0.8, 0.7, 0.2, 0.6, 0.3, 0.1, 0.4], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    estimates = values_of(judge, people)
    assert estimates["accuracy"] == 0.75
    assert estimates["weighted_kappa"] == pytest.approx(0.5), "of two levels, it is Cohen's"
    assert estimates["auroc"] == pytest.approx(13 / 16)
    assert estimates["brier"] == pytest.approx(np.mean((np.array(judge) - people) ** 2))
    assert estimates["spearman"] is None
    ordinal = values_of([0.0, 0.4, 0.6, 1.0, 0.9, 0.1], [0.0, 0.5, 0.5, 1.0, 0.5, 0.0], (0.0, 0.5, 1.0))
    assert ordinal["weighted_kappa"] == pytest.approx(12 / 14)  # the one slip is by one level
    assert ordinal["auroc"] == 1.0 and ordinal["ece"] is None


def test_calibration_error_is_that_of_bins() -> None:
    probability, outcome = np.array([0.95, 0.95, 0.15, 1.0]), np.array([1.0, 0.0, 0.0, 1.0])
    # bins: [0.9, 1.0] holds three with mean probability 2.9 / 3 and two hits, [0.1, 0.2) one
    assert expected_calibration_error(probability, outcome) == pytest.approx((abs(2 - 2.9) + 0.15) / 4)


def test_estimate_metrics_draws_whole_prompts() -> None:
    random = np.random.default_rng(0)
    people = random.integers(0, 2, 400).astype(float)
    judge = np.clip(people * 0.3 + 0.35 + random.normal(0, 0.25, 400), 0, 1)
    values = judge.tolist(), people.tolist()
    each = estimate_metrics([Sample.of(*values, range(400))], ("accuracy", "auroc"), resamples=200)
    for estimate in each.values():
        assert estimate.value and estimate.low and estimate.high and estimate.low < estimate.value < estimate.high
        assert 0.05 < estimate.high - estimate.low < 0.15  # ± 1.96 · sqrt(p (1 - p) / 400) is about ± 0.045
    alike = judge[:20].repeat(20).tolist(), people[:20].repeat(20).tolist()
    by_prompt = Sample.of(*alike, np.arange(20).repeat(20).tolist())
    few = estimate_metrics([by_prompt], ("accuracy",), resamples=200)["accuracy"]
    assert few.high is not None and few.low is not None and few.high - few.low > 0.2
    one_prompt = estimate_metrics([Sample.of(*values, [1] * 400)], ("accuracy",))["accuracy"]
    assert one_prompt.low is None, "one prompt gives no estimate for others"


def row(
    completion: int, value: float | None, verdict: Verdict | None, annotator: str = "ann", **fields: object
) -> JudgedLabel:
    criterion = Criterion(key="a", text="Says a.")
    estimates = {"a": verdict} if verdict else {}
    label = Label(criterion=str(fields.get("key", "a")), annotator=annotator, value=value)
    return JudgedLabel(completion, completion, 1, label, criterion if label.criterion == "a" else None, estimates, 0.5)


JUDGE = Judge(name="j", model="m")


def test_agreement_report_excludes_failures() -> None:
    rows = [row(n, float(n % 2), Verdict.scored("a", 0.9 if n % 2 else 0.1)) for n in range(20)]
    spoilt = [
        row(20, 1.0, Verdict.failed("a", "timeout")),
        row(21, 1.0, Verdict.abstained("a")),
        row(22, 1.0, None),
        row(23, None, Verdict.scored("a", 0.0)),
        row(24, 1.0, Verdict.scored("a", 1.0))._replace(
            criterion=Criterion(key="a", text="Says a.", check=Check(name="contains", args={"text": "a"}))
        ),
    ]
    report = agreement_report(JUDGE, rows + spoilt, resamples=0).pooled
    assert report.pairs == 20 and report.metrics["accuracy"].value == 1.0
    reasons = ("failed", "abstained", "not judged", "label without a value", "decided by a check")
    assert report.excluded == dict.fromkeys(reasons, 1)
    assert report.confusion == ((10, 0), (0, 10))


def test_estimate_metrics_says_why_there_is_no_interval() -> None:
    for prompts, resamples, known in [(4, 40, False), (8, 19, False), (8, 40, True)]:
        sample = Sample.of([0.9, 0.1] * 4, [1.0, 0.0] * 4, [n % prompts for n in range(8)])
        estimate = estimate_metrics([sample], ["accuracy"], resamples=resamples)["accuracy"]
        assert estimate.value == 1.0
        assert (estimate.low is not None, estimate.null_reason is None) == (known, known)


def test_agreement_report_lists_the_largest_disagreements_first_and_no_agreement() -> None:
    rows = []
    for n in range(10):
        verdict = Verdict.scored("a", 0.01 if n == 7 else 0.6, rationale="Because.")
        rows += [row(n, 1.0, verdict, "ann"), row(n, float(n >= 2), verdict, "bob")]
    report = agreement_report(JUDGE, rows, resamples=0)
    assert report.pooled.annotator_pairs == 10 and report.pooled.inter_annotator["accuracy"].value == pytest.approx(0.8)
    assert [(one.completion_id, one.annotator) for one in report.worst[:2]] == [(7, "ann"), (7, "bob")]
    assert [(one.completion_id, one.annotator) for one in report.worst[2:]] == [(0, "bob"), (1, "bob")]
    assert report.worst[0].rationale == "Because."


def test_agreement_report_correlates_rewards_with_overall_scores() -> None:
    rows = [row(n, n / 9, Verdict.scored("a", 0.5), key="overall") for n in range(10)]
    varied = [
        JudgedLabel(r.completion_id, r.prompt_id, 1, r.label, None, r.verdicts, n / 20) for n, r in enumerate(rows)
    ]
    report = agreement_report(JUDGE, varied, resamples=0)
    assert report.reward is not None and report.reward.metrics["spearman"].value == pytest.approx(1.0)
    assert report.pooled.pairs == 0 and report.pooled.metrics["accuracy"].value is None
    assert set(report.reward.metrics) < set(METRICS)
