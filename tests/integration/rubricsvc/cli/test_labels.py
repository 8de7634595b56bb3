"""``labels``, ``completions`` and ``graders``."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.formats.record import SHEET
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


def test_import_of_records_names_annotators_and_export_can_be_imported(labelled: Cli, tmp_path: Path) -> None:
    rows = labelled("labels", "export", "--json").lines
    assert [(row["criterion"], row["annotator"], row["value"]) for row in rows] == [
        ("c1", "ann", 1.0),
        ("c1", "bob", 0.0),
        ("c2", "person 1", 0.5),
        ("c2", "person 2", None),
        ("overall", "ann", 0.75),
    ]
    assert len(labelled("labels", "export", "--annotator", "ann").out.splitlines()) == 3, "a table of two labels"
    out = tmp_path / "labels.jsonl"
    assert labelled("labels", "export", "--out", out).code == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 5 and all((line["rubric"], line["rubric_id"]) == ("sky@1", 1) for line in lines)
    ran = labelled("labels", "import", out, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["new"]["labels"] == 0 and ran.json["existing"]["labels"] == 5


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


def test_export_of_a_job_has_the_labels_of_its_completions(labelled: Cli, tmp_path: Path) -> None:
    assert import_lines(labelled, SHARED, NAMED | {"labels": {"kind": 1}}).code == 0
    add_judge(labelled)
    assert labelled("jobs", "submit", "--judge", "quick", "--rubric", "manners", "--wait").code == 0
    assert labelled("jobs", "submit", "sky.jsonl", "--judge", "quick", "--wait").code == 0
    assert len(labelled("labels", "export", "--job", 1, "--json").lines) == 6
    lines = labelled("labels", "export", "--job", 2, "--json").lines
    assert len(lines) == 5 and {line["completion_id"] for line in lines} == {1}
    assert labelled("labels", "export", "--job", 9).code == 3


def test_sheet_to_fill_in_shows_no_verdict_and_comes_back_as_labels(labelled: Cli, tmp_path: Path) -> None:
    """Of CSV and Excel; a blank value is no label, and a formula in a text is none. Then people are compared."""
    second = RECORD | {"completions": [{"text": "=1+1", "policy": "p"}], "labels": {}}
    assert labelled("rubrics", "import", "-", stdin=json.dumps(second)).code == 0
    add_judge(labelled)
    assert labelled("jobs", "submit", "--judge", "quick", "--wait").code == 0
    assert labelled("labels", "export", "--blind").code == 2, "a sheet is of a job"
    sheet = tmp_path / "sheet.csv"
    assert labelled("labels", "template", "--job", 1, "--annotator", "eve", "--out", sheet).code == 0
    rows = list(csv.DictReader(sheet.read_text("utf-8-sig").splitlines()))
    assert sheet.read_bytes().startswith(b"\xef\xbb\xbf"), "Excel knows UTF-8 by it"
    assert [*rows[0]] == [*SHEET] and len(rows) == 4 and {row["annotator"] for row in rows} == {"eve"}
    assert {(row["value"], row["note"]) for row in rows} == {("", "")}
    assert {row["completion"] for row in rows} == {"Air scatters.", "'=1+1"}
    assert [row["values"] for row in rows[:2]] == ["met / not_met", "no / half / yes"]
    shown = [row["completion_digest"] for row in rows]
    assert shown == sorted(shown) and "completion_id" not in rows[0], "neither order nor ids tell a policy"
    untouched = labelled("labels", "import", sheet)
    assert untouched.code == 2 and "no valid labels" in untouched.err
    for row, value in zip(rows, ("true", "half", "null", ""), strict=True):
        row["value"] = value
    with sheet.open("w") as stream:
        writer = csv.DictWriter(stream, SHEET)
        writer.writeheader()
        writer.writerows(rows)
    ran = labelled("labels", "import", sheet, "--json")
    assert ran.code == 0 and ran.json["new"]["labels"] == 3, ran.err
    mine = labelled("labels", "export", "--annotator", "eve", "--json").lines
    assert [(one["criterion"], one["value"]) for one in mine] == [("c1", 1.0), ("c2", 0.5), ("c1", None)]

    openpyxl = pytest.importorskip("openpyxl")
    assert labelled("labels", "template", "--job", 1, "--blind", "--out", tmp_path / "sheet.xlsx").code == 0
    filled = openpyxl.load_workbook(tmp_path / "sheet.xlsx").active
    cells = list(filled.iter_rows(values_only=True))
    assert cells[0] == SHEET and len(cells) == 5
    assert filled["I2"].alignment.wrap_text and filled.column_dimensions["I"].width == 80
    assert labelled("labels", "template", "--job", 1, "--out", tmp_path / "sheet.jsonl").code == 2


def test_export_writes_sheets_by_the_ending_and_import_reads_them(labelled: Cli, tmp_path: Path) -> None:
    """With values as they are written on their scales: levels, numbers of the scale, null."""
    pytest.importorskip("openpyxl")
    criteria = [
        {"key": "n", "text": "N", "scale": [-5, 5]},
        {"key": "o", "text": "O", "scale": {"1": 0, "2": 0.5, "3": 1}},
    ]
    given = {"n": {"ann": 0.25}, "o": {"ann": 1}, "overall": {"ann": 0.3}}
    record = NAMED | {"name": "s", "criteria": criteria, "labels": given, "rubric": None}
    del record["rubric"]
    assert import_lines(labelled, record).code == 0
    note = {"completion_id": 2, "rubric": "s", "criterion": "n", "annotator": "bob", "value": None, "note": "-why"}
    assert import_lines(labelled, note).code == 0
    for ending in ("csv", "xlsx", "jsonl"):
        out = tmp_path / f"labels.{ending}"
        assert labelled("labels", "export", "--out", out).code == 0
        ran = labelled("labels", "import", out, "--json")
        assert ran.code == 0 and (ran.json["new"]["labels"], ran.json["existing"]["labels"]) == (0, 9), ran.err
    rows = list(csv.DictReader((tmp_path / "labels.csv").read_text("utf-8-sig").splitlines()))
    assert [row["value"] for row in rows[5:]] == ["'-2.5", "3", "0.3", "null"] and rows[8]["note"] == "'-why"
    assert labelled("labels", "export", "--out", tmp_path / "labels.txt").code == 2


def test_agreement_without_a_judge_is_between_people(labelled: Cli) -> None:
    assert labelled("labels", "agreement", "--criterion", "c2").code == 2, "one person labelled it with a value"
    people = {"ann": "1111100000", "bob": "1111100010", "cy": "1011000000"}
    for n in range(10):
        record = RECORD | {
            "id": f"p{n}",
            "name": f"r{n}",
            "prompt": f"Why {n}?",
            "completions": [{"text": "a", "id": "a"}],
        }
        record |= {"labels": {"c1": {who: values[n] == "1" for who, values in people.items()}}}
        assert import_lines(labelled, record).code == 0
    ran = labelled("labels", "agreement", "--json")
    assert ran.code == 0, ran.err
    report = ran.json
    assert report["judge"] is None and report["pooled"]["annotator_pairs"] == 31
    kappa = report["mean"]["inter_annotator"]["weighted_kappa"]
    assert 0.0 < kappa["low"] < kappa["value"] < kappa["high"] <= 1.0
    first = report["disputed"][0]
    assert (first["completion_id"], first["differ"], first["of"], first["distance"]) == (1, 1, 1, 1.0)
    assert "c1 ann 1, bob 1, cy 0" in labelled("labels", "agreement").out


def lines(*records: Mapping[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_import_list_and_show(cli: Cli, rubric_file: Path) -> None:
    cli("rubrics", "import", rubric_file)
    stdin = lines(
        {"prompt_id": "one", "completion": "1", "policy": "p", "step": 4},
        {"prompt": "What is two?", "text": "2", "policy": "q"},
        {"prompt": "What is three?", "text": ""},
    )
    ran = cli("completions", "import", "-", "--json", stdin=stdin)
    assert ran.code == 0
    assert ran.json["new"] == {"prompts": 1, "rubrics": 0, "completions": 3}
    assert cli("completions", "import", "-", "--json", stdin=stdin).json["new"]["completions"] == 0
    rows = cli("completions", "list", "--json").lines
    shown = [(row["completion"]["policy"], row["completion"]["text"]) for row in rows]
    assert shown == [("p", "1"), ("q", "2"), ("", "")] and len({row["prompt_id"] for row in rows}) == 3
    assert [row["completion"]["text"] for row in cli("completions", "list", "--policy", "q", "--json").lines] == ["2"]
    assert [row["completion"]["text"] for row in cli("completions", "list", "--prompt", "one", "--json").lines] == ["1"]
    assert cli("completions", "show", rows[0]["id"], "--json").json["completion"]["step"] == 4


STRING = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}


def written(path: Path, grader: Any) -> Path:
    path.write_text(json.dumps(grader))
    return path


@pytest.mark.usefixtures("new_machine")
def test_run_needs_no_judge_or_database_without_models(cli: Cli, tmp_path: Path) -> None:
    file, item = written(tmp_path / "g.json", STRING), written(tmp_path / "item.json", {"answer": "4"})
    ran = cli("score", "--rubric", file, "--item", item, "--completion", "-", stdin="4\n")
    assert ran.code == 0 and ["reward", "1"] in [line.split() for line in ran.out.splitlines()], ran.err
    (tmp_path / "4.txt").write_text("4")
    args = ("--item", '{"answer": "5"}', "--completion", "4.txt", "--json")
    ran = cli("score", "--rubric", "-", *args, stdin=json.dumps(STRING))
    assert (ran.code, ran.json["reward"]) == (0, 0.0)
    assert not (tmp_path / "books").exists()
