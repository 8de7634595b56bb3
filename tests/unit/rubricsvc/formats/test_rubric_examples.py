"""Examples of rubrics in our own YAML and JSON: short forms, and errors with their places."""

from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.rubric import NumberRange, Rubric
from rubricsvc.formats import InvalidFileError, Record, load
from workers.evolution import with_criteria
from workers.scoring.completions import questions_of

CRITERIA = """\
name: r
prompt: Why?
criteria:
  - {key: cause, text: Names the cause., weight: 2}
  - {key: depth, text: How deep?, scale: {shallow: 0, middling: 0.5, deep: 1}}
  - {key: style, text: How clear?, scale: [0, 10]}
  - {key: rude, text: Is rude., weight: -1}
"""


def read(tmp_path: Path, examples: str) -> Record:
    file = tmp_path / "r.yaml"
    file.write_text(f"{CRITERIA}examples:\n{examples}", encoding="utf-8")
    (record,) = load(file)
    return record


def rubric_of(record: Record) -> Rubric:
    assert record.rubric is not None
    return record.rubric


GOOD = """\
  - text: Heat, you fool.
    verdicts: {cause: true, depth: middling, style: [0.5, 1], rude: {min: 0.5}}
    reward: [0.2, 0.9]
    evidence: {cause: Heat, rude: [you fool]}
  - {key: empty, text: "", prompt: Why not?, reward: {max: 0.1}}
  - key: long
    prompt: {messages: [{role: user, content: What?}], documents: [{id: d, text: Heat.}]}
    text: Heat.
    verdicts: {cause: 1}
"""


def test_examples_are_read_with_their_short_forms(tmp_path: Path) -> None:
    first, empty, long = rubric_of(read(tmp_path, GOOD)).examples or ()
    assert (first.key, empty.key, first.prompt) == ("e1", "empty", None)
    assert first.verdicts == {
        "cause": NumberRange(min=1, max=1),
        "depth": NumberRange(min=0.5, max=0.5),
        "style": NumberRange(min=0.5, max=1),
        "rude": NumberRange(min=0.5),
    }
    assert first.evidence == {"cause": ("Heat",), "rude": ("you fool",)}
    assert (empty.text, empty.reward) == ("", NumberRange(max=0.1))
    assert empty.prompt is not None and empty.prompt.text == "Why not?"
    assert long.prompt is not None and long.prompt.documents[0].id == "d"


def test_examples_that_are_impossible_are_errors_at_their_place(tmp_path: Path) -> None:
    for examples, expected in [
        ("  - {text: x, verdicts: {causes: 1}}\n", ("unknown_criterion", "examples[0].verdicts.causes", 9)),
        ("  - {text: x, verdicts: {cause: 0.5}}\n", ("value_error", "examples[0].verdicts.cause", 9)),
        ("  - {text: x, verdicts: {depth: deeper}}\n", ("unknown_level", "examples[0].verdicts.depth", 9)),
        ("  - {text: x, verdicts: {style: 0.5}}\n", ("value_error", "examples[0].verdicts.style", 9)),
        ("  - {text: x, verdicts: {style: [0.9, 0.1]}}\n", ("value_error", "examples[0].verdicts.style", 9)),
        ("  - {text: x, verdicts: {cause: [0, 2]}}\n", ("value_error", "examples[0].verdicts.cause", 9)),
        ("  - {text: x, reward: [2, 3]}\n", ("value_error", "examples[0].reward", 9)),
        ("  - {text: x, reward: {min: 0.9, max: 0.1}}\n", ("value_error", "examples[0].reward", 9)),
        ("  - {text: x}\n", ("value_error", "examples[0]", 9)),
        ("  - {text: x, reward: 1, evidence: {cause: y}}\n", ("value_error", "examples[0]", 9)),
        ("  - {text: x, reward: 1, wrong: 1}\n", ("extra_forbidden", "examples[0].wrong", 9)),
        ("  - x\n", ("dict_type", "examples[0]", 9)),
        (
            "  - {key: a, text: x, reward: 1}\n  - {key: a, text: y, reward: 1}\n",
            ("value_error", "examples[1].key", 10),
        ),
    ]:
        with pytest.raises(InvalidFileError) as raised:
            read(tmp_path, examples)
        assert [(one.code, one.path, one.line) for one in raised.value.errors] == [expected]


def test_with_criteria_leaves_out_what_examples_say_of_others(tmp_path: Path) -> None:
    rubric = rubric_of(read(tmp_path, GOOD))
    smaller = with_criteria(rubric, [one for one in rubric.criteria if one.key != "cause"])
    assert [(one.key, sorted(one.verdicts or {}), one.evidence) for one in smaller.examples or ()] == [
        ("e1", ["depth", "rude", "style"], {"rude": ("you fool",)}),
        ("empty", [], None),
    ]


def test_examples_are_part_of_the_version_and_of_no_question(tmp_path: Path) -> None:
    rubric = rubric_of(read(tmp_path, GOOD))
    bare = rubric.model_copy(update={"examples": None})
    judge = Judge(name="j", model="m")
    assert rubric.digest != bare.digest
    assert questions_of(rubric, judge).digest == questions_of(bare, judge).digest


def test_digest_of_a_rubric_without_examples_is_what_it_was() -> None:
    content: dict[str, Any] = {"criteria": [{"key": "a", "text": "t"}]}
    assert Rubric.model_validate(content).digest == "7f902c15332e3d7f3d0599907364eae86b51dd4d664a20315d7f390a79bdb13d"
