"""`rubricsvc rubrics`, and `prompts`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli import Cli


@pytest.mark.usefixtures("new_machine")
def test_init_lint_and_import(cli: Cli, tmp_path: Path) -> None:
    assert cli("rubrics", "init", "mine.yaml").code == 0
    assert cli("rubrics", "init", "mine.yaml").code == 2
    assert cli("rubrics", "init", "mine.yaml", "--force").code == 0
    linted = cli("rubrics", "lint", "mine.yaml")
    assert linted.code == 0 and "1 valid record" in linted.err
    assert not (tmp_path / "books").exists()
    imported = cli("rubrics", "import", "mine.yaml")
    assert imported.code == 0
    assert "rubricsvc.db" in imported.err
    assert cli("rubrics", "show", "vaccine-storage", "--json").json["version"] == 1


def test_checks_that_are_invalid_are_listed_with_their_lines(cli: Cli, rubric_file: Path) -> None:
    bad = "- criteria:\n  - {text: a, check: word_cuont}\n  - {text: b, check: {contains: {}}}\n"
    rubric_file.write_text(rubric_file.read_text() + bad)
    for command in ("lint", "import"):
        ran = cli("rubrics", command, rubric_file)
        assert ran.code == 2
        assert "'word_cuont'" in ran.err and "rubrics.yaml:4:" in ran.err
        assert re.search(r"rubrics.yaml:5:\d+: criteria\[1\].check.contains.terms: ", ran.err)
    ran = cli("rubrics", "import", rubric_file, "--skip-invalid", "--json")
    assert ran.code == 0 and ran.json["new"]["rubrics"] == 2
    assert [skipped["line"] for skipped in ran.json["skipped"]] == [4, 5]


def test_diff_exits_with_1_on_changes(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    for text in ("Is kind.", "Is very kind."):
        file.write_text(f"name: kind\ncriteria: [{text}]\n")
        assert cli("rubrics", "import", file).code == 0
    assert [row["version"] for row in cli("rubrics", "list", "--name", "kind", "--json").lines] == [1, 2]
    changed = cli("rubrics", "diff", "kind@1", "kind")
    assert changed.code == 1
    assert changed.out.splitlines()[2:] == ["  c1: reworded, “Is kind.” → “Is very kind.”"]
    assert cli("rubrics", "diff", "kind@1", file).out.splitlines()[2:] == changed.out.splitlines()[2:]
    data = cli("rubrics", "diff", "kind@1", file, "--json").json
    assert (data["old"]["state"], data["new"]) == ("approved", {"rubric": str(file)})
    assert [(one["criterion"], one["field"], one["new"]) for one in data["changes"]] == [
        ("c1", "text", "Is very kind.")
    ]
    assert cli("rubrics", "diff", "kind", file).code == 0
    assert cli("rubrics", "diff", file, "kind@1").code == 1
    missing = cli("rubrics", "diff", "kind", "missing.yaml")
    assert missing.code == 3 and "'missing.yaml'" in missing.err
    file.write_text("- {name: other, criteria: [a]}\n- {name: kind, criteria: [Is very kind.]}\n")
    assert cli("rubrics", "diff", "kind", file).code == 0, "of several rubrics, that of the same name"
    file.write_text("name: kind\ncriteria: [{text: Is kind., weight: high}]\n")
    assert cli("rubrics", "diff", "kind", file).code == 2
    same = cli("rubrics", "diff", "kind", "kind@2")
    assert (same.code, same.out) == (0, "")
    digest = cli("rubrics", "show", "kind@1", "--json").json["digest"]
    assert cli("rubrics", "show", digest[:10], "--json").json["id"] == 1


@pytest.mark.parametrize("flags", [[], ["--yaml"]])
def test_export_can_be_imported(cli: Cli, rubric_file: Path, tmp_path: Path, flags: list[str]) -> None:
    cli("rubrics", "import", rubric_file)
    out = tmp_path / ("out.yaml" if flags else "out.jsonl")
    assert cli("rubrics", "export", *flags, "--out", out).code == 0
    assert cli("rubrics", "import", out, "--json").json["new"] == {"prompts": 0, "rubrics": 0, "completions": 0}
    assert len(cli("rubrics", "export", "first").lines) == 1
    shown = cli("rubrics", "show", "first", "--yaml").out
    assert shown.startswith("---\nid: one\nname: first\nprompt: What is one?\n")


def test_show_prints_sources_and_yaml_reads_them_back(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "sourced.yaml"
    file.write_text(
        "name: sourced\ncriteria:\n- text: Names the date of the meeting.\n"
        "  sources:\n  - {document: minutes, passage: on 3 May, as_of: 2024-05-03, clause: '2.1'}\n"
    )
    assert cli("rubrics", "import", file).code == 0
    shown = cli("rubrics", "show", "sourced")
    assert 'minutes, 2.1, "on 3 May", as of 2024-05-03' in shown.out
    file.write_text(cli("rubrics", "show", "sourced", "--yaml").out)
    assert cli("rubrics", "import", file, "--json").json["new"]["rubrics"] == 0
    assert cli("rubrics", "show", "sourced", "--provenance").code != 0
