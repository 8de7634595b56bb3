"""Figures on arrays small enough to check by hand, and inputs that allow none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.label import JudgedLabel, Label
from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal
from rubricsvc.core.verdict import Verdict
from rubricsvc.stats.agreement import (
    FIGURES,
    Pairs,
    alpha_of_people,
    brier,
    expected_calibration_error,
    levels_of,
    measure,
    nearest,
)
from rubricsvc.stats.assessment import assess

BINARY = (0.0, 1.0)


def figures(judge: list[float], people: list[float], levels: tuple[float, ...] = BINARY) -> dict[str, float | None]:
    found = measure(Pairs.of(judge, people, levels), range(len(judge)), resamples=0)
    return {name: figure.value for name, figure in found.items()}


def test_figures_of_a_binary_judge() -> None:
    """Three true positives, one false negative, one false positive, three true negatives."""
    judge, people = [0.9, 0.8, 0.7, 0.2, 0.6, 0.3, 0.1, 0.4], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    found = figures(judge, people)
    assert found["accuracy"] == found["balanced_accuracy"] == found["macro_f1"] == 0.75
    assert found["kappa"] == pytest.approx(0.5)
    assert found["alpha"] == pytest.approx(1 - (4 / 16) / (2 * 8 * 8 / (16 * 15)))
    assert found["auroc"] == pytest.approx(13 / 16)
    assert found["brier"] == pytest.approx(np.mean((np.array(judge) - people) ** 2))
    assert found["weighted_kappa"] == found["kappa"], "of two levels, weighting changes nothing"
    assert found["pearson"] is None


def test_figures_of_an_ordinal_judge() -> None:
    levels = (0.0, 0.5, 1.0)
    found = figures([0.0, 0.4, 0.6, 1.0, 0.9, 0.1], [0.0, 0.5, 0.5, 1.0, 0.5, 0.0], levels)
    assert found["accuracy"] == pytest.approx(5 / 6)
    assert found["weighted_kappa"] is not None and found["kappa"] is not None
    assert found["weighted_kappa"] > found["kappa"]  # the one slip is by one level
    assert found["spearman"] is not None and 0 < found["spearman"] < 1
    assert found["auroc"] is None and found["ece"] is None


def test_alpha_of_people_on_krippendorffs_own_example() -> None:
    """Four people, twelve things, some not labelled by all ("Computing Krippendorff's Alpha-Reliability", 2011, C)."""
    rows = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
    values = np.array([[np.nan if x == "." else (int(x) - 1) / 4 for x in row] for row in rows])
    levels = (0.0, 0.25, 0.5, 0.75, 1.0)
    found = alpha_of_people(values, levels, range(12), resamples=50)
    assert found.value == pytest.approx(0.815, abs=0.0005)  # ordinal; the thing that one person labelled is left out
    assert found.low is not None and found.high is not None and found.low < found.value < found.high
    assert "labelled by several" in str(alpha_of_people(values[:, :4], levels, range(4)).null_reason)
    assert "one answer" in str(alpha_of_people(np.ones((2, 9)), levels, range(9)).null_reason)


def test_people_are_held_against_each_other_on_overall_scores_too() -> None:
    rows = []
    for n in range(12):
        said = Verdict.scored("a", 0.5)
        rows += [row(n, n / 11, said, "ann", key="overall"), row(n, min(n + 1, 11) / 11, said, "bob", key="overall")]
    found = assess(JUDGE, rows, resamples=30).reward
    assert found is not None and found.people_pairs == 12
    assert 0.9 < (found.people["pearson"].value or 0.0) < 1.0 and found.people["pearson"].low is not None
    assert set(found.people) == {"pearson", "spearman", "alpha"} and (found.people["alpha"].value or 0.0) > 0.9


def test_calibration_error_and_brier_by_hand() -> None:
    probability, outcome = np.array([0.95, 0.95, 0.15, 1.0]), np.array([1.0, 0.0, 0.0, 1.0])
    # bins: [0.9, 1.0] holds three with mean probability 2.9 / 3 and two hits, [0.1, 0.2) one
    assert expected_calibration_error(probability, outcome) == pytest.approx((abs(2 - 2.9) + 0.15) / 4)
    assert brier(probability, outcome) == pytest.approx((0.05**2 + 0.95**2 + 0.15**2) / 4)


def test_levels_and_the_nearest_of_them() -> None:
    assert levels_of(Binary()) == BINARY
    assert levels_of(Numeric(low=1, high=5)) == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert len(levels_of(Numeric(low=0, high=100))) == len(levels_of(Numeric(low=0.5, high=1))) == 11
    scale = Ordinal(levels=(Level(label="good", value=1.0), Level(label="bad", value=0.2)))
    assert levels_of(scale) == (0.2, 1.0)
    assert nearest(np.array([0.0, 0.49, 0.5, 1.0]), BINARY).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("judge", "people", "levels", "why"),
    [
        ([], [], BINARY, {"accuracy": "0 pairs", "auroc": "0 pairs"}),
        ([0.5] * 3, [1.0] * 3, BINARY, {"accuracy": "3 pairs", "ece": "3 pairs"}),
        ([0.2, 0.9] * 5, [1.0] * 10, BINARY, {"kappa": "one answer", "auroc": "one answer", "alpha": "one answer"}),
        (
            [0.5] * 9,
            [0.0, 0.5, 1.0] * 3,
            (0.0, 0.5, 1.0),
            {"pearson": "the judge gave one answer", "auroc": "two levels"},
        ),
    ],
)
def test_what_allows_no_figure_says_why(
    judge: list[float], people: list[float], levels: tuple[float, ...], why: dict[str, str]
) -> None:
    found = measure(Pairs.of(judge, people, levels), range(len(judge)))
    for name, words in why.items():
        assert found[name].value is None and words in str(found[name].null_reason)
    assert all(figure.value is None or math.isfinite(figure.value) for figure in found.values())


def test_intervals_hold_the_figure_and_widen_where_prompts_are_few() -> None:
    random = np.random.default_rng(0)
    people = random.integers(0, 2, 400).astype(float)
    judge = np.clip(people * 0.3 + 0.35 + random.normal(0, 0.25, 400), 0, 1)
    pairs = Pairs.of(judge.tolist(), people.tolist(), BINARY)
    each = measure(pairs, range(400), ("accuracy", "auroc"), resamples=200)
    for figure in each.values():
        assert figure.value and figure.low and figure.high and figure.low < figure.value < figure.high
        assert 0.05 < figure.high - figure.low < 0.15  # ± 1.96 · sqrt(p (1 - p) / 400) is about ± 0.045
    alike = Pairs.of(judge[:20].repeat(20).tolist(), people[:20].repeat(20).tolist(), BINARY)
    few = measure(alike, np.arange(20).repeat(20).tolist(), ("accuracy",), resamples=200)["accuracy"]
    assert few.high is not None and few.low is not None and few.high - few.low > 0.2
    assert measure(pairs, [1] * 400, ("accuracy",))["accuracy"].low is None  # one prompt tells nothing of others


def row(
    completion: int, value: float | None, verdict: Verdict | None, annotator: str = "ann", **fields: object
) -> JudgedLabel:
    criterion = Criterion(key="a", text="Says a.")
    found = {"a": verdict} if verdict else {}
    label = Label(criterion=str(fields.get("key", "a")), annotator=annotator, value=value)
    return JudgedLabel(completion, completion, 1, label, criterion if label.criterion == "a" else None, found, 0.5)


JUDGE = Judge(name="j", model="m")


def test_what_is_failed_or_missing_is_counted_and_is_no_zero() -> None:
    rows = [row(n, float(n % 2), Verdict.scored("a", 0.9 if n % 2 else 0.1)) for n in range(20)]
    spoilt = [
        row(20, 1.0, Verdict.failed("a", "timeout")),
        row(21, 1.0, Verdict.abstained("a")),
        row(22, 1.0, None),
        row(23, None, Verdict.scored("a", 0.0)),
    ]
    found = assess(JUDGE, rows + spoilt, resamples=0).overall
    assert found.pairs == 20 and found.figures["accuracy"].value == 1.0
    assert found.left_out == {"failed": 1, "abstained": 1, "not judged": 1, "person could not tell": 1}
    assert found.confusion == [[10, 0], [0, 10]]


@pytest.mark.parametrize(
    ("prompts", "resamples", "why"),
    [
        (4, 40, "4 prompts; an interval takes 5"),
        (8, 19, "19 draws; an interval takes 20"),
        (8, 40, None),
    ],
)
def test_why_there_is_no_interval_is_told(prompts: int, resamples: int, why: str | None) -> None:
    pairs = Pairs.of([0.9, 0.1] * 4, [1.0, 0.0] * 4, BINARY)
    found = measure(pairs, [n % prompts for n in range(8)], ["accuracy", "pearson"], resamples=resamples)
    assert found["accuracy"].why_no_interval == why and (found["accuracy"].low is None) == (why is not None)
    assert found["pearson"].why_no_interval is None, "there is no figure at all"


def test_a_figure_that_few_draws_have_gets_no_interval() -> None:
    """The one person who says no is in every third draw only."""
    people = [0.0] + [1.0] * 59
    found = measure(Pairs.of(people, people, BINARY), range(60), ["kappa", "accuracy"], resamples=20)
    assert str(found["kappa"].why_no_interval).endswith("of 20 draws have this figure; an interval takes 20")
    assert found["accuracy"].why_no_interval is None


def test_people_stand_beside_the_judge_and_the_worst_comes_first() -> None:
    rows = []
    for n in range(10):
        verdict = Verdict.scored("a", 0.01 if n == 7 else 0.6, rationale="Because.")
        rows += [row(n, 1.0, verdict, "ann"), row(n, float(n >= 2), verdict, "bob")]
    found = assess(JUDGE, rows, resamples=0)
    assert found.overall.people_pairs == 10 and found.overall.people["accuracy"].value == pytest.approx(0.8)
    assert [(one.completion_id, one.annotator) for one in found.worst[:2]] == [(7, "ann"), (7, "bob")]
    assert len(found.worst) == 20 and found.worst[0].rationale == "Because."


def test_a_threshold_decides_the_class_and_the_probability_the_rest() -> None:
    strict = JUDGE.model_copy(update={"threshold": 0.8})
    rows = [
        row(n, float(p > 0.8), Verdict.scored("a", float(p > 0.8), probability=p))
        for n, p in enumerate((0.6, 0.7, 0.9, 0.95, 0.5, 0.85))
    ]
    found = assess(strict, rows, resamples=0).overall.figures
    assert found["accuracy"].value == 1.0 and found["auroc"].value == 1.0
    assert found["brier"].value == pytest.approx(np.mean([0.36, 0.49, 0.01, 0.0025, 0.25, 0.0225]))


def test_overall_scores_are_held_against_the_reward() -> None:
    rows = [row(n, n / 9, Verdict.scored("a", 0.5), key="overall") for n in range(10)]
    varied = [
        JudgedLabel(r.completion_id, r.prompt_id, 1, r.label, None, r.verdicts, n / 20) for n, r in enumerate(rows)
    ]
    found = assess(JUDGE, varied, resamples=0)
    assert found.reward is not None and found.reward.figures["pearson"].value == pytest.approx(1.0)
    assert found.overall.pairs == 0 and found.overall.figures["accuracy"].null_reason == "0 pairs; a figure takes 5"
    assert set(found.reward.figures) < set(FIGURES)
