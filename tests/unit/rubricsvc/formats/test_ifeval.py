from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.formats import load
from tests.unit.rubricsvc.formats.invalid import errors_of
from workers import checks

LINE = {
    "key": 1000,
    "prompt": "Write about the sea, without commas.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{}, {"relation": "at least", "num_words": 30, "keyword": None}],
}


def file_of(folder: Path, *lines: dict[str, Any]) -> Path:
    path = folder / "input.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_read_makes_a_checked_criterion_of_each_instruction(tmp_path: Path) -> None:
    (record,) = load(file_of(tmp_path, LINE))
    assert record.prompt is not None and record.prompt.text == LINE["prompt"]
    assert (record.id, record.name) == ("1000", "ifeval-1000")
    assert record.rubric is not None
    comma, words = record.rubric.criteria
    assert (comma.key, comma.weight) == ("1-punctuation:no_comma", 1.0)
    assert words.text == "Follows the instruction length_constraints:number_words (relation=at least, num_words=30)."
    assert words.check is not None and words.check.args == {
        "instruction_id": "length_constraints:number_words",
        "kwargs": {"relation": "at least", "num_words": 30},
    }
    checks.validate(record.rubric)


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"kwargs": [{}]}, "kwargs", "length"),
        ({"kwargs": "x"}, "kwargs", "list_type"),
        ({"instruction_id_list": [], "kwargs": []}, "instruction_id_list", "too_short"),
        ({"prompt": ""}, "prompt", "string_too_short"),
        ({"key": None}, "key", "int_type"),
    ],
)
def test_read_reports_line_and_field(tmp_path: Path, change: dict[str, Any], path: str, code: str) -> None:
    errors = errors_of(file_of(tmp_path, {**LINE, **change}))
    assert errors[0][1:] == (1, path, code)


def test_read_accepts_text_ids(tmp_path: Path) -> None:
    assert load(file_of(tmp_path, {**LINE, "key": "7a"}))[0].id == "7a"


def test_read_accepts_the_published_file(shared_data: Path) -> None:
    records = load(shared_data / "ifeval" / "input_data.jsonl")
    assert len(records) == 541
    for record in records:
        assert record.rubric is not None
        checks.validate(record.rubric)
