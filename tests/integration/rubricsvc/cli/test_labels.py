"""`rubricsvc labels`: import, list and export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import Cli, Ran, add_judge

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
    assert [(row["label"]["criterion"], row["label"]["annotator"], row["label"]["value"]) for row in rows] == [
        ("c1", "ann", 1.0),
        ("c1", "bob", 0.0),
        ("c2", "person 1", 0.5),
        ("c2", "person 2", None),
        ("overall", "ann", 0.75),
    ]
    rows = labelled("labels", "list", "--annotator", "ann", "--json").lines
    assert [row["label"]["value"] for row in rows] == [1.0, 0.75]


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
    assert (row["label"]["value"], row["label"]["note"]) == (0.0, "looked again")


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


SHARED = {
    "name": "manners",
    "criteria": [{"key": "kind", "text": "Is kind.", "scale": {"no": 0, "fair": 0.5, "yes": 1}}],
}
NAMED = {
    "id": "sea",
    "prompt": "Why is the sea salty?",
    "rubric": "manners",
    "completions": [{"text": "Rocks.", "id": "a"}],
}


def import_lines(cli: Cli, *lines: dict[str, object], options: tuple[str, ...] = ()) -> Ran:
    return cli("labels", "import", "-", "--json", *options, stdin="\n".join(map(json.dumps, lines)))


def test_import_of_records_labels_a_shared_rubric(cli: Cli, tmp_path: Path) -> None:
    """It is in the file, or stored before; a level has the value that the rubric gives it."""
    labelled = NAMED | {"labels": {"kind": {"ann": "fair", "bob": True}, "overall": {"ann": 0.25}}}
    ran = import_lines(cli, SHARED, labelled)
    assert ran.code == 0 and ran.json["new"]["labels"] == 3, ran.err
    again = {
        "id": "sky",
        "prompt": "Why blue?",
        "rubric": "manners@1",
        "completions": ["Air."],
        "labels": {"kind": "no"},
    }
    assert import_lines(cli, again).code == 0
    rows = cli("labels", "list", "--rubric", "manners", "--json").lines
    assert [(row["label"]["criterion"], row["label"]["annotator"], row["label"]["value"]) for row in rows] == [
        ("kind", "ann", 0.5),
        ("kind", "bob", 1.0),
        ("overall", "ann", 0.25),
        ("kind", "person 1", 0.0),
    ]
    assert len(cli("rubrics", "list", "--json").lines) == 1
    (tmp_path / "named.jsonl").write_text(json.dumps(NAMED))
    add_judge(cli)
    assert cli("jobs", "submit", "named.jsonl", "--judge", "quick", "--wait").code == 0
    assert [row["verdict"]["criterion"] for row in cli("verdicts", "list", "--job", 1, "--json").lines] == ["kind"]


def test_export_of_a_job_has_the_labels_of_its_completions(labelled: Cli, tmp_path: Path) -> None:
    assert import_lines(labelled, SHARED, NAMED | {"labels": {"kind": 1}}).code == 0
    add_judge(labelled)
    assert labelled("jobs", "submit", "--judge", "quick", "--rubric", "manners", "--wait").code == 0
    assert labelled("jobs", "submit", "sky.jsonl", "--judge", "quick", "--wait").code == 0
    assert len(labelled("labels", "export", "--job", 1).lines) == 6
    lines = labelled("labels", "export", "--job", 2).lines
    assert len(lines) == 5 and {line["completion_id"] for line in lines} == {1}
    assert len(labelled("labels", "list", "--job", 2, "--json").lines) == 5
    assert labelled("labels", "export", "--job", 9).code == 3
