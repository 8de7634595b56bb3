from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Group
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import load
from tests.unit.rubricsvc.formats.invalid import errors_of

QUERIES = [
    {"id": 1, "topic": "Law", "language": "zh", "prompt": "问题"},
    {"id": 2, "topic": "Art", "language": "en", "prompt": "A question"},
]
CRITERIA = [
    {
        "id": number,
        "prompt": prompt,
        "dimension_weight": {"insight": 0.75, "readability": 0.25},
        "criterions": {
            "readability": [{"criterion": "Clear", "explanation": "Is it?", "weight": 1.0}],
            "insight": [
                {"criterion": "Deep", "explanation": "", "weight": 0.4},
                {"criterion": "New", "explanation": "Says more.", "weight": 0.6, "comment": "-"},
            ],
        },
    }
    for number, prompt in ((1, "问题"), (2, "A question"))
]
REPORTS = [{"id": 2, "prompt": "A question", "article": "# Report"}]


def folder_of(
    folder: Path, queries: list[Any] = QUERIES, criteria: list[Any] = CRITERIA, reports: list[Any] = REPORTS
) -> Path:
    files = {"query.jsonl": queries, "criteria.jsonl": criteria, "reports_cleaned_some-model.jsonl": reports}
    for name, lines in files.items():
        (folder / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return folder


def test_read_makes_a_tree_of_dimensions(tmp_path: Path) -> None:
    records = load(folder_of(tmp_path))
    assert [record.id for record in records] == ["deep-research-bench-1", "deep-research-bench-2"]
    rubric = records[1].rubric
    assert rubric is not None and rubric.formula == "tree"
    assert rubric.groups == (Group(path=("insight",), weight=0.75), Group(path=("readability",), weight=0.25))
    assert [(c.key, c.weight, c.text) for c in rubric.criteria] == [
        ("insight-1", 0.4, "Deep"),
        ("insight-2", 0.6, "New: Says more."),
        ("readability-1", 1.0, "Clear: Is it?"),
    ]
    verdicts = [Verdict.scored("insight-1", 1), Verdict.scored("insight-2", 0), Verdict.scored("readability-1", 1)]
    assert reward(rubric, verdicts).value == pytest.approx(0.75 * 0.4 + 0.25)
    assert [(c.text, c.policy) for c in records[1].completions] == [("# Report", "cleaned_some-model")]
    assert records[0].completions == ()


def changed(**change: Any) -> list[Any]:
    return [CRITERIA[0], {**CRITERIA[1], **change}]


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"criteria": CRITERIA[:1]}, ("query.jsonl", 2, "", "unknown_task")),
        ({"criteria": changed(id=1)}, ("criteria.jsonl", 2, "id", "duplicate_key")),
        (
            {"criteria": changed(dimension_weight={"insight": 1.0})},
            ("criteria.jsonl", 2, "", "value_error"),
        ),
        (
            {"criteria": changed(criterions={"insight": [], "readability": []})},
            ("criteria.jsonl", 2, "criterions.insight", "too_short"),
        ),
        (
            {"criteria": changed(dimension_weight={"insight": -1.0, "readability": 1.0})},
            ("criteria.jsonl", 2, "dimension_weight.insight", "greater_than_equal"),
        ),
        (
            {"criteria": changed(dimension_weight={"insight": 0.0, "readability": 0.0})},
            ("criteria.jsonl", 2, "formula", "formula"),
        ),
        ({"queries": [*QUERIES, {"id": "3", "prompt": "x"}]}, ("query.jsonl", 3, "id", "int_type")),
        (
            {"reports": [{"id": 9, "article": "x"}]},
            ("reports_cleaned_some-model.jsonl", 1, "id", "unknown_task"),
        ),
        ({"reports": [{"id": 2}]}, ("reports_cleaned_some-model.jsonl", 1, "article", "missing")),
    ],
)
def test_read_reports_file_line_and_field(tmp_path: Path, files: dict[str, list[Any]], error: tuple[object]) -> None:
    assert error in errors_of(folder_of(tmp_path, **files))


def test_read_accepts_the_published_folder(shared_data: Path) -> None:
    folder = shared_data / "deep_research_bench"
    everything, english = load(folder), load(folder, "deep_research_bench_en")
    assert (len(everything), len(english)) == (100, 50)
    assert sum(len(record.rubric.criteria) for record in everything if record.rubric) == 2517
    assert all(len(record.completions) == 1 for record in everything)
