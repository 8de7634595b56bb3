"""`rubricsvc labels`: import, list and export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import Cli

RECORD = {
    "id": "sky",
    "name": "sky",
    "prompt": "Why is the sky blue?",
    "criteria": ["Names scattering.", {"text": "Is clear.", "scale": {"no": 0, "half": 0.5, "yes": 1}}],
    "completions": ["Air scatters."],
    "labels": {"c1": {"ann": True, "bob": False}, "c2": [0.5, None], "overall": {"ann": 0.75}},
}


@pytest.fixture
def labelled(cli: Cli, tmp_path: Path) -> Cli:
    path = tmp_path / "sky.jsonl"
    path.write_text(json.dumps(RECORD) + "\n")
    ran = cli("labels", "import", path, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["new"] == {"prompts": 1, "rubrics": 1, "completions": 1, "labels": 5}
    return cli


def test_import_of_records_names_annotators(labelled: Cli) -> None:
    rows = labelled("labels", "list", "--json").lines
    assert [(row["criterion"], row["annotator"], row["value"]) for row in rows] == [
        ("c1", "ann", 1.0),
        ("c1", "bob", 0.0),
        ("c2", "person 1", 0.5),
        ("c2", "person 2", None),
        ("overall", "ann", 0.75),
    ]
    assert [row["value"] for row in labelled("labels", "list", "--annotator", "ann", "--json").lines] == [1.0, 0.75]


def test_export_can_be_imported(labelled: Cli, tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    assert labelled("labels", "export", "--out", out).code == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 5 and all((line["rubric"], line["rubric_id"]) == ("sky@1", 1) for line in lines)
    ran = labelled("labels", "import", out, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["new"]["labels"] == 0 and ran.json["existing"]["labels"] == 5


def test_import_refuses_a_second_label_unless_replace(labelled: Cli) -> None:
    line = {
        "completion_id": 1,
        "rubric": "sky",
        "criterion": "c1",
        "annotator": "ann",
        "value": 0,
        "note": "looked again",
    }
    ran = labelled("labels", "import", "-", stdin=json.dumps(line))
    assert ran.code == 2 and "'ann'" in ran.err and "--replace" in ran.err
    assert labelled("labels", "import", "-", "--replace", stdin=json.dumps(line)).code == 0
    (row, _) = labelled("labels", "list", "--annotator", "ann", "--json").lines
    assert (row["value"], row["note"]) == (0.0, "looked again")


def test_import_accepts_level_names(labelled: Cli, tmp_path: Path) -> None:
    line = {"completion_id": 1, "rubric": "sky", "criterion": "c2", "annotator": "eve", "value": "half"}
    assert labelled("labels", "import", "-", stdin=json.dumps(line)).code == 0
    (row,) = labelled("labels", "list", "--annotator", "eve", "--json").lines
    assert row["value"] == 0.5
    record = RECORD | {
        "id": "sea",
        "name": "sea",
        "prompt": "Why is it?",
        "labels": {"c2": {"fay": "yes", "gus": "no"}},
    }
    (tmp_path / "sea.jsonl").write_text(json.dumps(record))
    assert labelled("labels", "import", "sea.jsonl").code == 0
    assert [row["value"] for row in labelled("labels", "list", "--completion", 2, "--json").lines] == [1.0, 0.0]
    (tmp_path / "sea.jsonl").write_text(json.dumps(record | {"labels": {"c2": {"fay": "yess"}}}))
    ran = labelled("labels", "import", "sea.jsonl")
    assert ran.code == 2 and "sea.jsonl:1: labels.c2: " in ran.err


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"completion_id": 9}, "9"),
        ({"rubric": "none"}, "'none'"),
        ({"criterion": "c9"}, "'c9'"),
        ({"value": 2}, "value: "),
        ({"value": "yes"}, "value: "),
        ({"criterion": "c2", "value": "mostly"}, "value: "),
        ({"criterion": "overall", "value": "half"}, "value: "),
        ({"criterion": "c9", "value": "half"}, "'c9'"),
        ({"annotator": " "}, "annotator: "),
        ({"anotator": "x"}, "'annotator'"),
    ],
)
def test_import_lists_invalid_lines_and_stores_nothing(labelled: Cli, change: dict[str, object], named: str) -> None:
    good = {"completion_id": 1, "rubric": 1, "criterion": "c1", "annotator": "eve", "value": 1}
    ran = labelled("labels", "import", "-", stdin=json.dumps(good) + "\n" + json.dumps(good | change))
    assert ran.code == 2 and named in ran.err and ":2: " in ran.err, ran.err
    assert len(labelled("labels", "list", "--json").lines) == 5
    ran = labelled(
        "labels", "import", "-", "--skip-invalid", "--json", stdin=json.dumps(good) + "\n" + json.dumps(good | change)
    )
    assert ran.code == 0 and len(ran.json["skipped"]) == 1


def test_import_refuses_a_file_without_labels(cli: Cli, rubric_file: Path) -> None:
    ran = cli("labels", "import", rubric_file)
    assert ran.code == 2 and str(rubric_file.name) in ran.err
    assert cli("rubrics", "list", "--json").out == ""


def test_import_of_completions_reports_labels_left_out(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "sky.jsonl"
    path.write_text(json.dumps(RECORD))
    ran = cli("completions", "import", path, "--format", "native")
    assert ran.code == 0 and "`rubricsvc labels import`" in ran.err
