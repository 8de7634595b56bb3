"""Planted faults by rule: what carries a criterion, what is altered, and texts that violate checks."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Check, Criterion, Rubric
from rubricsvc.core.rubric_example import NumberRange, RubricExample
from rubricsvc.core.rubric_test import CriterionFaults, ExampleTest, FaultReport, FaultTest, RubricTest, VerdictTest
from rubricsvc.formats import InputFile, stream
from rubricsvc.stats.intervals import rate
from tests.tested_rubric import RUBRIC
from workers import checks
from workers.authoring.planted_faults import (
    NO_RULE,
    GoodExample,
    fault_report,
    faults_by_rule,
    good_examples,
    is_worse,
    sentences,
    violations,
    without,
)

TEXT = """\
# Report

Water boils at 100 °C at sea level [1]. It boils at a lower temperature on a mountain [2].

- first
- second
- third

| a | b |
|---|---|
| 1 | 2 |

The rest is said elsewhere. Nothing follows from it."""


def by_rule(rubric: Rubric) -> dict[tuple[str, str], str]:
    found = [fault for base in good_examples(rubric) for fault in faults_by_rule(rubric, base)]
    return {(fault.base.criterion.key, fault.kind): fault.text for fault in found}


def rubric_of(text: str) -> Rubric:
    (record,) = stream(InputFile("r.yaml", stream=BytesIO(text.encode())))
    assert record.rubric is not None
    return record.rubric


def test_faults_by_rule_break_one_criterion_at_a_time() -> None:
    faults = by_rule(rubric_of(RUBRIC))
    assert faults["wait", "deleted"] == "Mark the box. Call the manufacturer in the morning."
    assert faults["wait", "negated"].startswith("Mark the box. The vaccines must be used")
    assert faults["who", "deleted"] == "Mark the box. The vaccines must not be used."
    assert faults["away", "planted"].endswith("in the morning. The vaccines must be thrown away.")
    assert len(faults["short", "check"].split()) > 45


def test_faults_by_rule_alter_a_number_that_the_criterion_names() -> None:
    criterion = Criterion(key="dose", text="Gives the dose of 20 mg.", reference="20 mg")
    example = RubricExample(
        key="e", text="Wait an hour. The dose is 20 mg a day for 5 weeks.", verdicts={"dose": NumberRange(min=1, max=1)}
    )
    faults = faults_by_rule(Rubric(criteria=(criterion,)), GoodExample(example, criterion, NumberRange(min=1, max=1)))
    by_kind = {fault.kind: fault.text for fault in faults}
    assert by_kind.keys() == {"deleted", "number"} and by_kind["deleted"] == "Wait an hour."
    assert by_kind["number"].startswith("Wait an hour. The dose is ") and "20 mg" not in by_kind["number"]


@pytest.mark.parametrize(("wording", "kinds"), [("Says that the shop opens at nine.", 2), ("Has nine good points.", 1)])
def test_faults_by_rule_alter_only_what_a_criterion_states(wording: str, kinds: int) -> None:
    criterion = Criterion(key="a", text=wording)
    met = NumberRange(min=1, max=1)
    quotes: dict[str, tuple[str, ...]] = {"a": ("The shop opens",)}
    example = RubricExample(key="e", text="Go. The shop opens at nine.", verdicts={"a": met}, evidence=quotes)
    faults = faults_by_rule(Rubric(criteria=(criterion,)), GoodExample(example, criterion, met))
    assert len({fault.kind for fault in faults}) >= kinds
    assert kinds > 1 or [fault.text for fault in faults] == ["Go."]


def test_faults_by_rule_plant_faults_of_examples_with_the_same_prompt() -> None:
    rude = Criterion(key="rude", text="Is rude.", weight=-1)
    unmet, met = NumberRange(min=0, max=0), NumberRange(min=1, max=1)
    one, other = Prompt.of("One?"), Prompt.of("Two?")
    bad = [
        RubricExample(
            key=f"bad {n}",
            text=f"Ha {n}. Fool {n}!",
            prompt=prompt,
            verdicts={"rude": met},
            evidence={"rude": (f"Fool {n}",)},
        )
        for n, prompt in enumerate((one, other))
    ]
    good = RubricExample(key="good", text="It is so.", prompt=other, verdicts={"rude": unmet})
    rubric = Rubric(criteria=(Criterion(key="a", text="t"), rude), examples=(*bad, good))
    (base,) = [one for one in good_examples(rubric) if one.example.key == "good"]
    assert [fault.text for fault in faults_by_rule(rubric, base)] == ["It is so. Fool 1!"]


def test_faults_by_rule_leave_out_what_no_sentence_carries() -> None:
    criterion = Criterion(key="tone", text="Is written in a warm tone.")
    example = RubricExample(key="e", text="Call them.", verdicts={"tone": NumberRange(min=1, max=1)})
    base = GoodExample(example, criterion, NumberRange(min=1, max=1))
    assert faults_by_rule(Rubric(criteria=(criterion,)), base) == []


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("words", {"min": 20}),
        ("words", {"max": 60}),
        ("words", {"min": 10, "max": 60}),
        ("sentences", {"min": 3}),
        ("paragraphs", {"max": 9}),
        ("characters", {"max": 400}),
        ("contains", {"terms": ["Boils", "lower temperature"], "mode": "all"}),
        ("contains", {"terms": ["boils", "freezes"]}),
        ("contains", {"terms": ["freezes"], "mode": "none"}),
        ("regex", {"pattern": "(?i)sea level"}),
        ("headings", {"min": 1}),
        ("lists", {"min": 3}),
        ("tables", {"min": 1}),
        ("format", {"kind": "json"}),
        ("language", {"codes": ["en"]}),
    ],
)
def test_violations_are_what_the_check_refuses(name: str, args: dict[str, Any]) -> None:
    check = Check(name=name, args=args)
    rubric = Rubric(criteria=(Criterion(key="c", text="-", check=check),))
    text = '{"a": ["b", "c"]}' if name == "format" else TEXT
    assert value(rubric, text) == 1.0
    broken = list(violations(check, text))
    assert broken and all((value(rubric, one) or 0.0) < 0.5 for one in broken)


def value(rubric: Rubric, text: str) -> float | None:
    (verdict,) = checks.run(rubric, Prompt.of("-"), Completion(text=text))
    return verdict.value


def test_sentences_keep_what_is_between_the_others() -> None:
    text = 'One is "here." Two: e.g. this.\n\n1. Three is a point.\n2. Four!'
    assert sentences(text) == ['One is "here."', "Two: e.g.", "this.", "1. Three is a point.", "2. Four!"]
    assert without("A one. B two. C three.", [(7, 13)]) == "A one. C three."
    assert without("A one.\n\nB two.\nC three.", [(8, 14)]) == "A one.\nC three."


@pytest.mark.parametrize(
    ("weight", "expected", "found", "worse"),
    [
        (1, NumberRange(min=1, max=1), 0.49, True),
        (1, NumberRange(min=1, max=1), 0.5, False),
        (-1, NumberRange(min=0, max=0), 0.5, True),
        (-1, NumberRange(min=0, max=0), 0.49, False),
        (1, NumberRange(min=1, max=1), None, False),
    ],
)
def test_is_worse_counts_the_nearest_level(
    weight: float, expected: NumberRange, found: float | None, worse: bool
) -> None:
    assert is_worse(Criterion(key="a", text="t", weight=weight), expected, found) is worse


def outcome(*passed: bool | None, faults: FaultReport | None = None) -> str:
    one = NumberRange(min=1, max=1)
    verdicts = tuple(VerdictTest(criterion="a", expected=one, passed=value) for value in passed)
    examples = (ExampleTest(example="e", verdicts=verdicts),)
    return RubricTest(judge="j", judge_digest="", rubric_digest="", examples=examples, faults=faults).outcome


def report(caught: int, n: int, unmeasured: int, min_catch: float | None) -> FaultReport:
    total = {"caught": rate(caught, n), "noticed": rate(caught, n), "false_alarms": rate(0, 1)}
    part = CriterionFaults(criterion="a", unmeasured=unmeasured, skipped=None, **total)
    return FaultReport(criteria=(part,), faults=(), min_catch=min_catch, **total)


def test_fault_report_of_a_judge_that_always_sees_a_fault_shows_its_alarms() -> None:
    rubric = rubric_of(RUBRIC)
    bases = good_examples(rubric)
    faults = [
        FaultTest(example="careful", criterion=key, kind="deleted", text="-", found=0.0, caught=True)
        for key in ("wait", "who", "who")
    ]
    faults.append(FaultTest(example="careful", criterion="who", kind="deleted", text="-", caught=None))
    verdicts = tuple(
        VerdictTest(criterion=key, expected=NumberRange(min=1, max=1), found=value, passed=value > 0)
        for key, value in (("wait", 0.0), ("who", 1.0))
    )
    unmeasured = VerdictTest(criterion="away", expected=NumberRange(min=0, max=0), passed=None)
    found = fault_report(rubric, bases, faults, [ExampleTest(example="careful", verdicts=(*verdicts, unmeasured))])
    by_key = {one.criterion: one for one in found.criteria}
    rates = {key: [(r.hits, r.n) for r in (one.caught, one.noticed, one.false_alarms)] for key, one in by_key.items()}
    assert rates == {
        "wait": [(1, 1), (0, 0), (1, 1)],
        "who": [(2, 2), (2, 2), (0, 1)],
        "away": [(0, 0), (0, 0), (0, 0)],
        "short": [(0, 0), (0, 0), (0, 0)],
    }
    assert (by_key["who"].unmeasured, by_key["who"].skipped, by_key["short"].skipped) == (1, None, NO_RULE)
    assert [(r.hits, r.n) for r in (found.caught, found.noticed, found.false_alarms)] == [(3, 3), (2, 2), (1, 2)]


def test_outcome_is_failed_before_unmeasured_before_passed() -> None:
    assert [outcome(True, True), outcome(True, None), outcome(None, False)] == ["passed", "unmeasured", "failed"]
    assert outcome(True, faults=report(0, 4, 0, None)) == "passed"
    assert outcome(True, faults=report(2, 4, 0, 0.6)) == "failed"
    assert outcome(True, faults=report(3, 4, 0, 0.6)) == "passed"
    assert outcome(True, faults=report(3, 3, 1, 0.6)) == "unmeasured"
    assert outcome(True, faults=report(0, 0, 4, 0.6)) == "unmeasured"
