"""Invisible characters in files of rubrics."""

from __future__ import annotations

import json
from pathlib import Path

from rubricsvc.core.rubric import Ordinal
from rubricsvc.formats import load
from tests.unit.rubricsvc.formats.test_load import only_error, write


def test_load_removes_invisible_characters_with_a_note(tmp_path: Path) -> None:
    text = '{"criteria": ["Says\u200b why\U000e0041.", "Is \u202ekind."]}\n'
    records = load(write(tmp_path, "r.jsonl", text))
    assert records[0].rubric is not None
    assert [one.text for one in records[0].rubric.criteria] == ["Says why.", "Is kind."]
    assert [(note.code, note.path) for note in records.notes] == [
        ("invisible", "criteria[0].text"),
        ("invisible", "criteria[1].text"),
    ]


def test_load_removes_invisible_characters_from_every_field_that_a_judge_or_reviewer_reads(tmp_path: Path) -> None:
    hidden = "\u3164\u180e\U000e0120"
    level = {"label": f"bad{hidden}", "value": 0, "text": f"Wrong.{hidden}"}
    judged = {
        "key": f"a{hidden}",
        "text": "Says why.",
        "scale": {"kind": "ordinal", "levels": [level, {"label": "good", "value": 1}]},
        "passages": ["Because.", f"So.{hidden}"],
        "group": [f"style{hidden}"],
        "tags": [f"t{hidden}"],
        "sources": [{"document": "d", "passage": f"So.{hidden}"}],
    }
    checked = {"key": "b", "text": "Has no blanks.", "check": {"name": "forbids", "args": {"any": [hidden]}}}
    data = {"criteria": [judged, checked], "examples": [{"key": "e", "text": f"Hm.{hidden}", "verdicts": {"b": 0}}]}
    records = load(write(tmp_path, "r.jsonl", json.dumps(data) + "\n"))
    rubric = records[0].rubric
    assert rubric is not None and rubric.examples is not None and rubric.criteria[1].check is not None
    assert {note.path for note in records.notes} == {
        "criteria[0].scale.levels[0].label",
        "criteria[0].scale.levels[0].text",
        "criteria[0].passages[1]",
        "criteria[0].group[0]",
        "criteria[0].tags[0]",
        "criteria[0].sources[0].passage",
    }
    first = rubric.criteria[0]
    assert isinstance(first.scale, Ordinal) and first.scale.levels[0].text == "Wrong."
    assert (first.key, first.passages, first.group, first.tags) == (
        f"a{hidden}",
        ("Because.", "So."),
        ("style",),
        ("t",),
    )
    assert rubric.criteria[1].check.args == {"any": [hidden]} and rubric.examples[0].text == f"Hm.{hidden}"


def test_load_refuses_a_rubric_that_is_invalid_without_its_invisible_characters(tmp_path: Path) -> None:
    levels = [{"label": "good", "value": 0}, {"label": "good\u3164", "value": 1}]
    data = {"criteria": [{"text": "Says why.", "scale": {"kind": "ordinal", "levels": levels}}]}
    assert only_error(write(tmp_path, "r.jsonl", json.dumps(data) + "\n")).code == "invisible"
