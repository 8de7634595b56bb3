"""`rubricsvc rubrics`, and `prompts`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli import Cli
from tests.scripted_server import labels, scripted_server

_SEVEN = "id: 7\nprompt: What is seven?\ncriteria: [a]\n"
FIRST = {
    "new": {"prompts": 2, "rubrics": 2, "completions": 0},
    "existing": {"prompts": 0, "rubrics": 0, "completions": 0},
    "skipped_count": 0,
    "skipped_records": 0,
}


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


def test_init_trajectory_is_scored_step_by_step(cli: Cli) -> None:
    assert cli("rubrics", "init", "agent.yaml", "--trajectory").code == 0
    linted = cli("rubrics", "lint", "agent.yaml")
    assert linted.code == 0 and "1 valid record" in linted.err
    step = {"role": "assistant", "content": "Rayleigh scattering."}
    with scripted_server(labels(Yes=0.75, No=0.25)) as server:
        args = ("score", "--rubric", "agent.yaml", "--judge", server.url, "--model", "m", "--mode", "trajectory")
        ran = cli(*args, "--prompt", "Why?", "--completion", "-", "--json", stdin=json.dumps([step]))
    assert ran.code == 0, ran.err
    values = {verdict["criterion"]: verdict["value"] for verdict in ran.json["verdicts"]}
    assert values == {"progress": 0.75, "heeds-results": 0.75, "off-course": 0.75, "no-circles": 1.0, "answers": 1.0}


def test_import_again_changes_nothing(cli: Cli, rubric_file: Path) -> None:
    first = cli("rubrics", "import", rubric_file, "--json").json
    names = ["first@1", "second@1"]
    expected = FIRST | {"skipped": [], "notes": [], "rubrics": names, "new_rubrics": names, "not_approved": {}}
    assert {key: first[key] for key in expected} == expected
    again = cli("rubrics", "import", rubric_file, "--json")
    assert again.code == 0
    assert again.json["new"] == {"prompts": 0, "rubrics": 0, "completions": 0}
    assert again.json["existing"] == {"prompts": 2, "rubrics": 2, "completions": 0}
    assert "2 prompts, 2 rubrics" in again.err
    assert (again.json["rubrics"], again.json["new_rubrics"]) == (names, [])
    assert "first@1, second@1" in cli("rubrics", "import", rubric_file).out


def test_import_of_an_earlier_version_names_the_newest(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "seven.yaml"
    for text in (_SEVEN, _SEVEN.replace("[a]", "[b]"), _SEVEN):
        file.write_text(text)
        ran = cli("rubrics", "import", file)
    assert ran.code == 0
    assert "7@1" in ran.err and "version 2" in ran.err


def test_import_of_an_invalid_file_stores_nothing(cli: Cli, rubric_file: Path) -> None:
    rubric_file.write_text(rubric_file.read_text() + "- {prompt: x, criteria: []}\n- {prompt: y, criteria: [5]}\n")
    ran = cli("rubrics", "import", rubric_file)
    assert ran.code == 2
    assert "rubrics.yaml:3:" in ran.err and "rubrics.yaml:4:" in ran.err
    assert "--skip-invalid" in ran.err and "Traceback" not in ran.err
    assert cli("rubrics", "list", "--json").out == ""
    assert cli("prompts", "list", "--json").out == ""


def test_import_skip_invalid_lists_skipped_records(cli: Cli, rubric_file: Path) -> None:
    rubric_file.write_text(rubric_file.read_text() + "- {prompt: x, criteria: []}\n")
    ran = cli("rubrics", "import", rubric_file, "--skip-invalid", "--json")
    assert ran.code == 0
    assert ran.json["new"]["rubrics"] == 2
    assert [skipped["line"] for skipped in ran.json["skipped"]] == [3]
    assert "skipped " in ran.err and "rubrics.yaml:3:15: criteria: " in ran.err


def test_checks_that_are_unknown_are_refused(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("criteria: [{text: a, check: word_cuont}]\n")
    for command in ("lint", "import"):
        ran = cli("rubrics", command, file)
        assert ran.code == 2 and "'word_cuont'" in ran.err


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


@pytest.mark.parametrize(
    ("lines", "line", "path"),
    [
        (["text: a", "check:", "  regex:", "    patern: x"], 5, "check.regex.patern"),
        (["text: a", "check:", "  name: regex", "  args: {pattern: y,", "    patern: x}"], 6, "check.args.patern"),
    ],
)
def test_checks_with_an_unknown_argument_have_its_line(
    cli: Cli, tmp_path: Path, lines: list[str], line: int, path: str
) -> None:
    (tmp_path / "r.yaml").write_text("\n".join(["criteria:", f"- {lines[0]}", *(f"  {text}" for text in lines[1:])]))
    for command in ("lint", "import"):
        ran = cli("rubrics", command, "r.yaml")
        assert ran.code == 2
        assert re.search(rf"r.yaml:{line}:\d+: criteria\[0\].{path}: ", ran.err), ran.err
        assert "'pattern'" in ran.err


def test_rubrics_of_stdin_are_named_stdin(cli: Cli) -> None:
    for _ in range(2):
        assert cli("rubrics", "import", "-", stdin='{"criteria": ["a"]}\n{"criteria": ["b"]}\n').code == 0
    assert [row["name"] for row in cli("rubrics", "list", "--json").lines] == ["stdin", "stdin-2"]


def test_names_come_from_ids_and_file_names(cli: Cli, tmp_path: Path) -> None:
    for file, text in (("2024.yaml", "criteria: [a]\n"), ("a@b.yaml", "criteria: [a]\n"), ("x.yaml", _SEVEN)):
        (tmp_path / file).write_text(text)
        assert cli("rubrics", "import", file).code == 0
    names = [row["name"] for row in cli("rubrics", "list", "--json").lines]
    assert names == ["rubric-2024", "a-b", "rubric-7"]
    assert cli("prompts", "show", "7", "--json").json["external_id"] == "7"
    for name in ("'7'", "a@b"):
        (tmp_path / "bad.yaml").write_text(f"criteria: [a]\nname: {name}\n")
        ran = cli("rubrics", "import", "bad.yaml")
        assert ran.code == 2 and "bad.yaml:2:1: name: " in ran.err


def test_import_name_is_for_one_rubric(cli: Cli) -> None:
    ran = cli("rubrics", "import", "-", "--name", "piped", "--json", stdin='{"criteria": ["a"]}\n')
    assert ran.code == 0
    assert [row["name"] for row in cli("rubrics", "list", "--json").lines] == ["piped"]
    two = cli("rubrics", "import", "-", "--name", "piped", stdin='{"criteria": ["a"]}\n{"criteria": ["b"]}\n')
    assert two.code == 2 and "--name" in two.err


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
    lines = cli("rubrics", "diff", "kind@1", "kind", "--yaml").out.splitlines()
    assert "-  text: Is kind." in lines and "+  text: Is very kind." in lines
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


def test_diff_shows_both_weights(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("criteria: [{text: Is kind., weight: 4, required: true}]\n")
    new.write_text("criteria: [{text: Is kind., required: true}]\n")
    changed = cli("rubrics", "diff", old, new, "--yaml")
    assert changed.code == 1
    changes = [line for line in changed.out.splitlines()[2:] if line[0] in "+-"]
    assert changes == ["-  weight: 4", "+  weight: 1"]


def test_lint_names_the_command_for_labels(cli: Cli, tmp_path: Path) -> None:
    line = {"completion_id": 1, "rubric": "r", "criterion": "c1", "annotator": "a", "value": 1}
    (tmp_path / "labels.jsonl").write_text(json.dumps(line))
    ran = cli("rubrics", "lint", "labels.jsonl")
    assert ran.code == 2 and "rubricsvc labels import" in ran.err


@pytest.mark.parametrize("flags", [[], ["--yaml"]])
def test_export_can_be_imported(cli: Cli, rubric_file: Path, tmp_path: Path, flags: list[str]) -> None:
    cli("rubrics", "import", rubric_file)
    out = tmp_path / ("out.yaml" if flags else "out.jsonl")
    assert cli("rubrics", "export", *flags, "--out", out).code == 0
    assert cli("rubrics", "import", out, "--json").json["new"] == {"prompts": 0, "rubrics": 0, "completions": 0}
    assert len(cli("rubrics", "export", "first").lines) == 1
    shown = cli("rubrics", "show", "first", "--yaml").out
    assert shown.startswith("---\nid: one\nname: first\nprompt: What is one?\n")


def test_list_pages_by_id(cli: Cli, rubric_file: Path) -> None:
    cli("rubrics", "import", rubric_file)
    (first,) = cli("rubrics", "list", "--limit", 1, "--json").lines
    (second,) = cli("rubrics", "list", "--after", first["id"], "--json").lines
    assert [first["name"], second["name"]] == ["first", "second"]
    assert [row["name"] for row in cli("rubrics", "list", "--prompt", "two", "--json").lines] == ["second"]
    table = cli("rubrics", "list").out.splitlines()
    columns = "ID NAME VERSION STATE DIGEST PROMPT_ID CRITERIA FORMULA ORIGIN"
    assert table[0].split() == columns.split()


def test_prompts_show_lists_rubrics(cli: Cli, rubric_file: Path) -> None:
    cli("rubrics", "import", rubric_file)
    assert cli("prompts", "show", "one", "--json").json["rubrics"] == ["first@1"]
    assert "What is one?" in cli("prompts", "show", "one").out
    assert [row["prompt"]["messages"][0]["content"] for row in cli("prompts", "list", "--json").lines] == [
        "What is one?",
        "What is two?",
    ]


def test_lint_describes_records(cli: Cli, rubric_file: Path) -> None:
    first = cli("rubrics", "lint", rubric_file, "--json").lines[0]
    assert first == {
        "name": "first",
        "criteria": 2,
        "pitfalls": 1,
        "checked": 0,
        "formula": "weighted_mean",
        "completions": 0,
    }
    assert json.dumps(first)


def test_paperbench_tree_survives_export_and_import(cli: Cli, tmp_path: Path) -> None:
    leaf = {"requirements": "Runs.", "weight": 1, "sub_tasks": [], "score": 1.0, "task_category": "Code Execution"}
    tree = {"id": "r", "requirements": "All.", "weight": 1, "sub_tasks": [leaf | {"id": "a"}, leaf | {"id": "b"}]}
    (tmp_path / "paper.json").write_text(json.dumps(tree))
    assert cli("rubrics", "import", "paper.json").code == 0
    shown = cli("rubrics", "show", "paperbench-paper", "--json").json
    assert (shown["formula"], [c["key"] for c in shown["rubric"]["criteria"]]) == ("tree", ["a", "b"])
    (tmp_path / "out.jsonl").write_text(cli("rubrics", "export", "paperbench-paper").out)
    assert cli("rubrics", "import", "out.jsonl", "--json").json["existing"]["rubrics"] == 1


def test_import_names_the_line_of_an_unknown_formula(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("criteria: [a]\nformula: helthbench\n")
    ran = cli("rubrics", "import", "r.yaml")
    assert ran.code == 2 and "r.yaml:2:1: formula: " in ran.err


def test_lint_reports_all_errors_and_the_valid_records(cli: Cli, tmp_path: Path) -> None:
    bad = "".join(
        f"- {{prompt: q{n}, criteria: [{{text: a, weight: x, check: {{contains: {{}}}}}}]}}\n" for n in range(30)
    )
    (tmp_path / "r.yaml").write_text("- {prompt: ok, criteria: [a]}\n" + bad)
    ran = cli("rubrics", "lint", "r.yaml")
    assert ran.code == 2 and ran.err.count("r.yaml:") == 30 and "skip-invalid" not in ran.err
    assert ran.out.splitlines()[1].split()[0] == "r"
    lines = cli("rubrics", "lint", "r.yaml", "--json").lines
    errors = [line for line in lines if "code" in line]
    assert {(one["line"], one["path"], one["code"]) for one in errors} == {
        (n + 2, *fault)
        for n in range(30)
        for fault in (("criteria[0].weight", "float_type"), ("criteria[0].check.contains.terms", "check"))
    }
    assert [line["name"] for line in lines if "code" not in line] == ["r"]
    ran = cli("rubrics", "import", "r.yaml", "--skip-invalid", "--json")
    assert (ran.code, ran.json["skipped_count"], ran.json["skipped_records"]) == (0, 60, 30)
    assert "skipped_records  30" in cli("rubrics", "import", "r.yaml", "--skip-invalid").out


def test_lint_and_import_report_one_rubric_of_two_prompts(cli: Cli, tmp_path: Path) -> None:
    lines = ["- {prompt: a, name: same, criteria: [x]}", "- {prompt: b, name: same, criteria: [x]}"]
    (tmp_path / "r.yaml").write_text("\n".join(lines))
    for command in ("lint", "import"):
        ran = cli("rubrics", command, "r.yaml")
        assert ran.code == 2 and "r.yaml:2:" in ran.err and "'same'" in ran.err


def test_lint_reports_a_misspelt_field_with_the_other_errors(cli: Cli, tmp_path: Path) -> None:
    lines = [
        {"prompt": "a", "critera": ["x"]},
        {"prompt": "b", "criteria": [{"text": "x", "check": {"words": {"mni": 1, "max": "y"}}}]},
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ran = cli("rubrics", "lint", "r.jsonl")
    assert ran.code == 2 and "r.jsonl:1: critera: " in ran.err and "'criteria'" in ran.err
    assert "(args.mni)" in ran.err and "(args.max)" in ran.err


def test_export_lists_what_a_format_does_not_carry(cli: Cli, rubric_file: Path) -> None:
    cli("rubrics", "import", rubric_file)
    done = cli("rubrics", "export", "first", "--format", "verl", "--out", "verl.parquet", "--json")
    assert done.code == 0 and done.json["rubrics"] == 1
    assert done.json["lost"] == {"name": 1} and " name of 1 rubric" in done.err
    assert cli("rubrics", "import", "verl.parquet", "--json").json["new"]["rubrics"] == 1


def test_import_reads_by_a_mapping_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("record: {id: nr, prompt: ask, criteria: {each: checks, text: .}}\n")
    (tmp_path / "mine.jsonl").write_text('{"nr": "7", "ask": "Why?", "checks": ["Says why.", "Is kind."]}\n')
    assert cli("rubrics", "import", "mine.jsonl", "--mapping", "mine.yaml", "--json").json["rubrics"] == ["rubric-7@1"]
    (tmp_path / "mine.jsonl").write_text('{"nr": "7", "ask": "Why?", "checks": ["Says why.", 8]}\n')
    refused = cli("rubrics", "import", "mine.jsonl", "--mapping", "mine.yaml")
    assert refused.code == 2 and "mine.jsonl:1: checks[1]: " in refused.err


def test_export_refuses_files_that_a_format_does_not_have(cli: Cli, rubric_file: Path) -> None:
    cli("rubrics", "import", rubric_file)
    assert cli("rubrics", "export", "first", "--format", "criteria_csv", "--out", "c.jsonl").code == 2
    assert cli("rubrics", "export", "first", "--format", "paperbench").code == 2
    assert cli("rubrics", "export", "first", "--json").code == 2


def test_import_prints_notes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "judge.toml").write_text('[judge]\nsamples = 3\n\n[[criterion]]\ndescription = "Is right."\n')
    done = cli("rubrics", "import", "judge.toml", "--format", "auto", "--json")
    assert done.code == 0 and done.json["notes"][0]["code"] == "judge" and "note: " in done.err


def test_init_writes_a_preset_with_its_prompt(cli: Cli, tmp_path: Path) -> None:
    listed = cli("rubrics", "presets", "--json").lines
    assert {"advice", "plan"} <= {row["preset"] for row in listed}
    for row in listed:
        out = tmp_path / f"{row['preset']}.yaml"
        assert cli("rubrics", "init", "--preset", row["preset"], "--prompt", "What now?", "--out", out).code == 0
        assert cli("rubrics", "lint", out).code == 0
        assert cli("rubrics", "import", out, "--json").json["new"]["rubrics"] == 1
    assert cli("rubrics", "init", "--preset", "plan", "--out", tmp_path / "plan.yaml").code == 2
    assert cli("rubrics", "init", "--preset", "nonsense").code == 3
    assert cli("rubrics", "init", "--prompt", "What now?").code == 2
    assert cli("rubrics", "init", "--preset", "plan", "--trajectory").code == 2


def test_export_leaves_drafts_out_unless_named(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "draft.yaml"
    file.write_text("{name: first, criteria: [Says one or two.]}")
    cli("rubrics", "import", rubric_file)
    assert "submit first@2" in cli("rubrics", "import", file, "--draft").err
    ran = cli("rubrics", "export")
    assert [row["criteria"][0]["text"] for row in ran.lines] == ["Says one.", "Says two."] and "draft" in ran.err
    assert cli("rubrics", "export", "first@2").lines[0]["criteria"][0]["text"] == "Says one or two."
    retired = cli("rubrics", "retire", "first", "--json")
    assert (retired.json["rubric"], cli("rubrics", "show", "first").code) == ("first@1", 2)
    assert "first@1 is retired" in cli("rubrics", "import", rubric_file).err
    assert cli("prompts", "show", "one", "--json").json["rubrics"] == []
    history = cli("rubrics", "history", "first").out
    assert "added as approved" in history and "approved → retired" in history and "added as draft" in history


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
