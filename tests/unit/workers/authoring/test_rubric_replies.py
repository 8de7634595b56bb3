"""Rubrics read from replies, and faults planted into good completions."""

import json
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, NumberRange, Ordinal, Rubric, RubricExample
from rubricsvc.core.rubric_analysis import CriterionFaults, ExampleTest, FaultReport, FaultTest, RubricTest, VerdictTest
from rubricsvc.formats import InputFile, stream
from rubricsvc.stats.intervals import rate
from tests.tested_rubric import RUBRIC
from workers.authoring.planted_faults import NO_RULE, fault_report, faults_by_rule, good_examples
from workers.authoring.rubric_replies import ALLOWED_CHECKS, criteria_texts, read_rubric
from workers.authoring.templates import read
from workers.checks import CHECKS

GOOD = "1. [5] Says that __add__ is tried first.\n2. [-2] Claims that __radd__ always runs."
EXPECTED = [(5.0, "Says that __add__ is tried first."), (-2.0, "Claims that __radd__ always runs.")]
FIRST = {"text": "Says that something is so.", "weight": 3}


def lines(text: str, truncated: bool = False) -> list[tuple[float, str]]:
    return [(criterion.weight, criterion.text) for criterion in read_rubric(text, truncated=truncated).criteria]


def with_fields(**fields: Any) -> str:
    return json.dumps({"criteria": [FIRST, {"text": "Says another thing as well.", **fields}]})


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"Here is the rubric:\n\n{GOOD}\n\nI hope this helps.",
        GOOD.replace("\n", "\n\n"),
        GOOD.replace(". [", ") [").replace("Says", "**Says**"),
        GOOD + "\n3. [4] says that __ADD__ is tried first",
        json.dumps([{"text": text, "weight": weight} for weight, text in EXPECTED]),
        "Here:\n```json\n"
        + json.dumps({"criteria": [{"text": text, "weight": weight} for weight, text in EXPECTED]})
        + "\n```\nI hope this helps.",
    ],
    ids=["list", "with words around", "blank lines", "other marks", "a repeated line", "json", "fenced json"],
)
def test_read_rubric_reads_lists_and_json(text: str) -> None:
    assert lines(text) == EXPECTED


def test_read_rubric_takes_whatever_a_criterion_can_be() -> None:
    document = "The committee met on 3 May 2024.\nIt adopted\nthe second draft."
    levels = [{"label": "no", "value": 0}, {"label": "half", "value": 0.5, "text": "one"}, {"label": "all", "value": 1}]
    source = {"document": "minutes", "passage": "adopted the second draft", "as_of": "2024-05-03", "clause": "2"}
    check = {"name": "words", "args": {"max": 200}}
    given_criteria = [
        {**FIRST, "levels": levels, "required": True, "kind": "principle"},
        {"text": "Has at most 200 words in all.", "check": check, "kind": "hard rule"},
        {"text": "Says that the second draft was adopted.", "reference": "the second draft", "sources": [source]},
    ]
    first, second, third = read_rubric(
        json.dumps({"criteria": given_criteria}), documents={"minutes": document}
    ).criteria
    assert isinstance(first.scale, Ordinal) and first.required and first.tags == ("principle",)
    assert second.check is not None and second.check.args == {"max": 200} and second.tags == ("hard-rule",)
    assert third.sources is not None and third.sources[0].as_of == "2024-05-03"
    assert third.passages == ("adopted the second draft",)


NO_RUBRICS = [
    "",
    "The left operand is asked first.",
    "1. [5] Says that __add__ is tried first.",
    "1. [5] Says the same thing.\n2. [3] Says the same thing!",
    "2. [5] Says that something.\n3. [3] Says another thing.",
    "1. [5] Short.\n2. [3] Also.",
    "1. [0] Says that something.\n2. [3] Says another thing.",
    "1. [-1] Says that something.\n2. [-3] Says another thing.",
    "\n".join(f"{n}. [1] Says that the number is {n}." for n in range(1, 14)),
    "1. Says " + "very " * 100 + "much.\n2. [3] Says another thing.",
    '[{"text": "Says that something.", "weight": NaN}, {"text": "Says another thing."}]',
    '[{"text": "Says that something.", "points": 3}, {"text": "Says another thing."}]',
    '{"rubric": []}',
    '[{"text": "Says that something.", "weight": 1}, {"text": "Says an',
    "[" * 100_000,
    with_fields(provenance={"model": "another"}),
    with_fields(check={"name": "no_such_check"}),
    with_fields(check={"name": "python", "args": {"source": "def grade(sample, item): return 1"}}),
    with_fields(check={"name": "words", "args": {"most": 3}}),
    with_fields(check={"name": "words", "args": {"max": 3}}, levels=[{"label": "a", "value": 0}] * 2),
    with_fields(levels=[{"label": "a", "value": 0}, {"label": "a", "value": 1}]),
    with_fields(levels=[{"label": "a", "value": 0}, {"label": "b", "value": 7}]),
    with_fields(sources=[{"document": "minutes", "passage": "adopted the third draft"}]),
    with_fields(sources=[{"document": "elsewhere", "passage": "adopted the second draft"}]),
    with_fields(sources=[{"document": "minutes", "passage": "adopted the second draft", "as_of": "in May"}]),
    with_fields(sources=[{"document": "minutes", "passage": "adopted the second draft", "as_of": "2024-13-01"}]),
]


def test_read_rubric_rejects_all_but_rubrics() -> None:
    for text in NO_RUBRICS:
        with pytest.raises(ValueError) as caught:
            read_rubric(text, documents={"minutes": "It adopted the second draft."})
        assert str(caught.value) and "validation error" not in str(caught.value), text


@given(st.text() | st.text(alphabet="12.[]-5 abcdefghijklm\n"), st.booleans())
def test_read_rubric_raises_nothing_but_value_errors(text: str, truncated: bool) -> None:
    try:
        rubric = read_rubric(text, truncated=truncated)
    except ValueError:
        return
    assert 2 <= len(rubric.criteria) <= 20


@pytest.mark.parametrize("template", ["one_shot", "reference_guided", "list"])
def test_read_rubric_rejects_criteria_of_the_example(template: str) -> None:
    examples = criteria_texts(read(template).shared)
    assert len(examples) >= 4
    copied = next(iter(sorted(examples)))
    with pytest.raises(ValueError, match="copied"):
        read_rubric(json.dumps({"criteria": [FIRST, {"text": copied}]}), examples=examples)


def test_allowed_checks_run_no_code() -> None:
    assert CHECKS.keys() > ALLOWED_CHECKS and not ALLOWED_CHECKS & {"code", "python"}


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
