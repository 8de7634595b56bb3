"""`rubricsvc labels`: import, list and export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
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


def test_export_can_be_imported_into_another_database(
    labelled: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its completions have other ids, or are not there; its rubrics have other versions."""
    exported = labelled("labels", "export").out
    monkeypatch.setenv("RUBRICSVC_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    get_settings.cache_clear()
    other = RECORD | {"prompt": "Why is the sea salty?", "criteria": ["Names rocks.", "Is clear."], "labels": {}}
    assert labelled("rubrics", "import", "-", stdin=json.dumps(other | {"name": "sea"})).code == 0
    assert labelled("rubrics", "import", "-", stdin=json.dumps(other | {"prompt": "Why?"})).code == 0
    ran = labelled("labels", "import", "-", "--json", stdin=exported)
    assert ran.code == 2 and "<stdin>:1: rubric_digest: " in ran.err, ran.err
    named = [json.loads(line) | {"rubric": json.loads(line)["rubric_digest"]} for line in exported.splitlines()]
    again = "\n".join(map(json.dumps, named))
    unlabelled = {key: value for key, value in RECORD.items() if key != "labels"}
    assert labelled("rubrics", "import", "-", stdin=json.dumps(unlabelled | {"completions": ["The sea."]})).code == 0
    ran = labelled("labels", "import", "-", stdin=again)
    assert ran.code == 2 and "<stdin>:1: completion_digest: " in ran.err, ran.err
    assert labelled("rubrics", "import", "-", stdin=json.dumps(unlabelled)).code == 0
    assert labelled("labels", "import", "-", stdin=again).code == 0
    rows = labelled("labels", "list", "--json").lines
    assert len(rows) == 5 and {row["completion_id"] for row in rows} == {4}
    ran = labelled(
        "labels", "import", "-", stdin=json.dumps({k: v for k, v in named[0].items() if k != "prompt_digest"})
    )
    assert ran.code == 2 and "prompt_digest: " in ran.err


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


def test_import_of_a_record_without_criteria_names_what_is_missing(cli: Cli) -> None:
    record = {key: value for key, value in RECORD.items() if key not in ("criteria", "name")}
    ran = import_lines(cli, record)
    assert ran.code == 2 and "<stdin>:1: labels: " in ran.err and "rubric: NAME" in ran.err, ran.err
    assert cli("prompts", "list", "--json").out == ""


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
    assert [(row["criterion"], row["annotator"], row["value"]) for row in rows] == [
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


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"rubric": "none"}, "rubric"),
        ({"rubric": "sky"}, "rubric"),
        ({"rubric": ["manners"]}, "rubric"),
        ({"criteria": ["a"]}, "rubric"),
        ({"labels": {"c9": 1}}, "criterion"),
        ({"labels": {"kind": "mostly"}}, "value"),
    ],
)
def test_import_of_a_record_with_a_rubric_that_does_not_fit(
    labelled: Cli, change: dict[str, object], path: str
) -> None:
    assert labelled("rubrics", "import", "-", stdin=json.dumps(SHARED)).code == 0
    bad = NAMED | {"labels": {"kind": 1}} | change
    ran = import_lines(labelled, bad)
    assert ran.code == 2 and f"<stdin>:1: {path}: " in ran.err, ran.err
    good = NAMED | {"id": "tea", "prompt": "Tea?", "labels": {"kind": 1}}
    ran = import_lines(labelled, bad, good, options=("--skip-invalid",))
    assert ran.code == 0 and (ran.json["new"]["labels"], ran.json["skipped_records"]) == (1, 1)


def test_import_reads_labels_from_csv(cli: Cli, tmp_path: Path) -> None:
    """Cells are texts: a level comes before a number, digits without a prompt are an id in the database."""
    criteria = [*RECORD["criteria"], {"text": "Is short.", "scale": {"1": 0, "3": 0.5, "5": 1}}]  # type: ignore[misc]
    assert cli("rubrics", "import", "-", stdin=json.dumps(RECORD | {"criteria": criteria, "labels": {}})).code == 0
    rows = ["c1,1", "c1,0.25", "c1,TRUE", "c1,null", "c2,half", "c3,1", "c3,0.5"]
    lines = [f"1,sky,{row},person {n}" for n, row in enumerate(rows)]
    path = tmp_path / "lab.csv"
    path.write_text("\n".join(["completion_id,rubric,criterion,value,annotator", *lines]))
    ran = cli("labels", "import", path)
    assert ran.code == 0, ran.err
    values = [row["value"] for row in cli("labels", "list", "--json").lines]
    assert values == [1.0, 0.25, 1.0, None, 0.5, 0.0, 0.5]
    path.write_text("completion_id,rubric,criterion,value,annotator\n1,sky,c1,2,ann\n1,sky,c1,[1],ann\n")
    ran = cli("labels", "import", path)
    assert ran.code == 2 and "lab.csv:2: value: " in ran.err and "lab.csv:3: value: " in ran.err, ran.err


def test_import_accepts_the_ids_of_the_file(cli: Cli) -> None:
    record = RECORD | {"completions": [{"text": "Air scatters.", "id": "a"}, {"text": "The sea.", "id": "7"}]}
    record = {key: value for key, value in record.items() if key != "labels"}
    assert cli("rubrics", "import", "-", stdin=json.dumps(record)).code == 0
    line = {
        "prompt_id": "sky",
        "completion_id": "a",
        "criterion": "c1",
        "annotator": "ann",
        "value": 1,
        "rubric": "sky@1",
    }
    ran = import_lines(cli, line, line | {"completion_id": "7", "annotator": "bob", "criterion": "c2", "value": "half"})
    assert ran.code == 0 and ran.json["new"]["labels"] == 2, ran.err
    rows = cli("labels", "list", "--json").lines
    assert [(row["completion_id"], row["annotator"], row["value"]) for row in rows] == [
        (1, "ann", 1.0),
        (2, "bob", 0.5),
    ]
    assert import_lines(cli, line | {"prompt_id": 1}).json["existing"]["labels"] == 1, "a number is a database id"


def test_import_lists_the_candidates_of_an_ambiguous_id(cli: Cli) -> None:
    records = [
        {
            "id": "sky",
            "name": f"r{n}",
            "prompt": f"Version {n}?",
            "criteria": ["a"],
            "completions": [{"text": "x", "id": id_}],
        }
        for n, id_ in ((1, "a"), (2, "a"), (2, "b"))
    ]
    assert cli("rubrics", "import", "-", stdin="\n".join(map(json.dumps, records))).code == 0
    line = {"prompt_id": "sky", "completion_id": "a", "criterion": "c1", "annotator": "ann", "value": 1, "rubric": "r1"}
    ran = import_lines(cli, line)
    assert ran.code == 2 and "<stdin>:1: completion_id: " in ran.err and "1 (of prompt 1), 2 (of prompt 2)" in ran.err
    assert import_lines(cli, line | {"completion_id": "b", "rubric": "r2"}).code == 0, "only one prompt has it"
    for change, path in (({"completion_id": "c"}, "completion_id"), ({"prompt_id": "sea"}, "prompt_id")):
        ran = import_lines(cli, line | change)
        assert ran.code == 2 and f"<stdin>:1: {path}: " in ran.err
    for change, path in (({"completion_id": 1}, "completion_id"), ({"prompt_id": None}, "prompt_id")):
        ran = import_lines(cli, line | change)
        assert ran.code == 2 and f"<stdin>:1: {path}: " in ran.err, ran.err
    assert import_lines(cli, {key: value for key, value in line.items() if key != "prompt_id"}).code == 2


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
