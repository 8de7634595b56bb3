"""Planted faults by rule: what carries a criterion, what is altered, and texts that violate checks."""

from __future__ import annotations

from io import BytesIO

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, NumberRange, Rubric, RubricExample
from rubricsvc.core.rubric_analysis import CriterionFaults, ExampleTest, FaultReport, FaultTest, RubricTest, VerdictTest
from rubricsvc.formats import InputFile, stream
from rubricsvc.stats.intervals import rate
from tests.tested_rubric import RUBRIC
from workers import checks
from workers.authoring.planted_faults import (
    NO_RULE,
    fault_report,
    faults_by_rule,
    good_examples,
)


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


def value(rubric: Rubric, text: str) -> float | None:
    (verdict,) = checks.run(rubric, Prompt.of("-"), Completion(text=text))
    return verdict.value


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
