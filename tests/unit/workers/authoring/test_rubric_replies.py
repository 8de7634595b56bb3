import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.rubric import Ordinal
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
    assert CHECKS.keys() > ALLOWED_CHECKS
    assert not ALLOWED_CHECKS & {"code", "python"}
