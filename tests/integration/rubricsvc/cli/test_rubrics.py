"""``rubrics``: import, lint, test, analyse and fit."""

import json
import os
import re
from pathlib import Path
from pwd import getpwuid
from typing import Any

import pytest

from rubricsvc.settings import get_settings
from tests.cli import Cli
from tests.scripted_server import ScriptedReply, labels, scripted_server, text_reply
from tests.tested_rubric import RUBRIC, reader


@pytest.mark.usefixtures("new_machine")
def test_init_lint_and_import(cli: Cli, tmp_path: Path) -> None:
    assert cli("rubrics", "init", "mine.yaml").code == 0
    assert cli("rubrics", "init", "mine.yaml").code == 2
    assert cli("rubrics", "init", "mine.yaml", "--force").code == 0
    linted = cli("rubrics", "lint", "mine.yaml")
    assert linted.code == 0 and "1 valid record" in linted.err
    assert not (tmp_path / "books").exists()
    imported = cli("rubrics", "import", "mine.yaml")
    assert imported.code == 0 and "approved 1" in imported.out
    assert "rubricsvc.db" in imported.err
    lost = cli("rubrics", "lint", "lost@1")
    assert lost.code == 3 and "no file and no stored rubric 'lost@1'" in lost.err
    shown = cli("rubrics", "show", "vaccine-storage", "--json").json
    assert (shown["version"], shown["state"]) == (1, "approved")


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
    assert changed.out.splitlines()[2:] == ["  c1: text “Is kind.” → “Is very kind.”"]
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


def test_export_can_be_imported(cli: Cli, rubric_file: Path, tmp_path: Path) -> None:
    cli("rubrics", "import", rubric_file)
    for name in ("out.yaml", "out.jsonl"):
        assert cli("rubrics", "export", "--out", tmp_path / name).code == 0
        ran = cli("rubrics", "import", tmp_path / name, "--json")
        assert ran.json["new"] == {"prompts": 0, "rubrics": 0, "completions": 0}
    assert len(cli("rubrics", "export", "first").lines) == 1
    assert cli("rubrics", "export", "first", "--out", tmp_path / "first.yaml").code == 0
    assert (tmp_path / "first.yaml").read_text().startswith("---\nid: one\nname: first\nprompt: What is one?\n")


def test_show_prints_sources_and_yaml_reads_them_back(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "sourced.yaml"
    file.write_text(
        "name: sourced\ncriteria:\n- text: Names the date of the meeting.\n"
        "  sources:\n  - {document: minutes, passage: on 3 May, as_of: 2024-05-03, clause: '2.1'}\n"
    )
    assert cli("rubrics", "import", file).code == 0
    shown = cli("rubrics", "show", "sourced")
    assert 'minutes, 2.1, "on 3 May", as of 2024-05-03' in shown.out
    assert cli("rubrics", "export", "sourced", "--out", file).code == 0
    assert cli("rubrics", "import", file, "--json").json["new"]["rubrics"] == 0
    assert cli("rubrics", "show", "sourced", "--provenance").code != 0


BROKEN = """name: one
prompt: What is the dose?
criteria:
  - {key: sign, text: Fails to mention the dose., weight: 5}
  - {key: two, text: Names the drug and explains its effect.}
  - {key: copy, text: Names the drug and explains its effect.}
  - {key: short, text: Is short., check: {words: {max: 50}}}
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    return path


def rules(lines: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(line["rule"], line["criterion"]) for line in lines if "rule" in line]


def test_lint_prints_findings_and_exits_with_1_on_errors(cli: Cli, broken: Path) -> None:
    ran = cli("rubrics", "lint", broken, "--json")
    assert ran.code == 1
    found = rules(ran.lines)
    assert found[0] == ("sign", "sign")
    about_two = {(rule, key) for rule in ("two-questions", "near-duplicate") for key in ("two", "copy")}
    assert set(found[1:]) == {("dominant-weight", "sign"), ("empty-passes", "short"), *about_two}
    assert all(line["rubric"] == "one" for line in ran.lines)
    text = cli("rubrics", "lint", broken)
    assert text.code == 1 and "error  sign: 1 finding. " in text.out and "  sign: “Fails to”" in text.out
    explained = cli("rubrics", "lint", "--rule", "sign", "--json")
    assert (explained.code, explained.json["name"]) == (0, "sign")


def test_lint_of_a_set_has_ten_findings_first_and_each_rule_once(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {"criteria": [f"Names the town {n} and describes its port.", f"Fails to name lake {n}."]} for n in range(12)
    ]
    file = tmp_path / "set.jsonl"
    file.write_text("\n".join(json.dumps({"name": f"r{n}", **row}) for n, row in enumerate(rows)))
    ran = cli("rubrics", "lint", file)
    assert (ran.code, len(cli("rubrics", "lint", file, "--json").lines)) == (1, 24)
    first, errors, warnings = ran.out.split("\n\n")
    assert first.startswith("Look at these first (10 of 24 findings)") and first.count("  sign  ") == 10
    assert "12 findings in 12 of 12 rubrics (100%)" in errors and errors.count("\n") == 2, "those not shown above"
    assert warnings.startswith("warning  two-questions: 12 findings") and warnings.count("asks more") == 2
    assert "English, German" in ran.err
    file.write_text("criteria: [{text: a, weight: high}]")
    assert "no findings" not in cli("rubrics", "lint", file).err, "nothing was checked"


def test_lint_says_what_it_does_not_read_whatever_is_left_out(cli: Cli) -> None:
    text = "name: es\ncriteria: [Menciona la dosis de la medicina., No menciona los riesgos que hay.]\n"
    ran = cli("rubrics", "lint", "-", "--severity", "warning", stdin=text)
    assert ran.code == 0 and "es: wording is not checked: language looks like Spanish" in ran.err


def test_the_person_is_the_user_of_the_system(cli: Cli, rubric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert cli("rubrics", "import", rubric, "--draft").code == 0
    shown = cli("rubrics", "show", "fridge@1", "--json").out
    assert "somebody-else" not in shown and f'"{getpwuid(os.geteuid()).pw_name}"' in shown


def test_four_eyes_let_an_author_approve_under_no_name(
    cli: Cli, rubric_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_REQUIRE_APPROVAL", "four_eyes")
    get_settings.cache_clear()
    assert cli("rubrics", "import", rubric_file).code == cli("rubrics", "review", "first", "submit").code == 0
    for command in (("import", rubric_file), ("review", "first", "approve")):
        ran = cli("rubrics", *command, "--by", "bob")
        assert ran.code == 2 and "hint: leave out --by" in ran.err
    assert "may not approve it" in cli("rubrics", "review", "first", "approve").err
    assert cli("rubrics", "show", "first@1", "--json").json["state"] == "in_review"


def test_lint_asks_a_judge_about_contradictions(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "name: r\ncriteria: [Names the dose., Sends the reader away at once., Invites the reader to stay.]\n"
    )

    def contrary(_number: int, body: dict[str, Any]) -> ScriptedReply:
        text = json.dumps(body)
        both = "everything" in text or ("away" in text and "stay" in text)
        return labels(Yes=0.9, No=0.1) if both else labels(No=0.9, Yes=0.1)

    with scripted_server(contrary) as server:
        add_judge(cli, server.url)
        ran = cli("rubrics", "lint", file, "--judge", "reader", "--json")
        (file.parent / "all.yaml").write_text("criteria: [Sees everything., Reads everything., Is kind., Is blue.]\n")
        credulous = cli("rubrics", "lint", file.parent / "all.yaml", "--judge", "reader", "--json")
    assert ran.code == 0 and rules(ran.lines) == [("contradiction", "c3")]
    assert "pairs 3, asked 3, failed 0, found 1" in ran.err
    assert credulous.lines == [] and "found 5" in credulous.err and "most pairs" in credulous.err
    down = cli("rubrics", "lint", file, "--judge", "reader", "--json")
    assert (down.code, down.lines) == (0, []) and "failed 3" in down.err


@pytest.fixture
def rubric(tmp_path: Path) -> Path:
    file = tmp_path / "fridge.yaml"
    file.write_text(RUBRIC, encoding="utf-8")
    return file


def add_judge(cli: Cli, url: str, name: str = "reader", **fields: Any) -> None:
    judge = {"name": name, "model": "scripted", "endpoint": {"base_url": url, "max_retries": 0}, **fields}
    assert cli("judges", "add", "-f", "-", "--no-probe", stdin=json.dumps(judge)).code == 0


def test_test_passes_where_the_judge_finds_what_is_expected(cli: Cli, rubric: Path) -> None:
    with scripted_server(reader) as server:
        add_judge(cli, server.url)
        ran = cli("rubrics", "test", rubric, "--judge", "reader", "--json")
        text = cli("rubrics", "test", rubric, "--judge", "reader")
    assert (ran.code, text.code, ran.json["outcome"]) == (0, 0, "passed"), ran.err
    careful, hasty = ran.json["examples"]
    assert [one["passed"] for one in careful["verdicts"]] == [True] * 4
    assert (careful["reward_passed"], careful["reward"], hasty["reward_passed"]) == (
        True,
        pytest.approx(0.9, abs=0.1),
        True,
    )
    assert (ran.json["stored"], ran.json["faults"]) == (None, None)
    assert text.out.split("\n")[6].split()[:5] == ["careful", "wait", "met", "met", "(0.9798)"], text.out


def test_test_fails_where_a_verdict_differs(cli: Cli, rubric: Path) -> None:
    rubric.write_text(RUBRIC.replace("verdicts: {wait: false, away: true}", "verdicts: {wait: true, away: true}"))
    with scripted_server(reader) as server:
        add_judge(cli, server.url)
        ran = cli("rubrics", "test", rubric, "--judge", "reader", "--json")
    assert (ran.code, ran.json["outcome"]) == (1, "failed")
    found = {one["criterion"]: one["passed"] for one in ran.json["examples"][1]["verdicts"]}
    assert found == {"wait": False, "away": True}


def test_test_counts_planted_faults_by_rule(cli: Cli, rubric: Path) -> None:
    def careless(number: int, request: dict[str, Any]) -> ScriptedReply:
        about_who = "manufacturer" in request["messages"][-1]["content"].rpartition("</completion-")[2]
        return labels(Yes=0.97, No=0.02) if about_who else reader(number, request)

    for script, who, code in ((reader, 1.0, 0), (careless, 0.0, 1)):
        with scripted_server(script) as server:
            add_judge(cli, server.url, script.__name__)
            ran = cli("rubrics", "test", rubric, "--judge", script.__name__, "--min-catch", "0.9", "--json")
        report = {one["criterion"]: one for one in ran.json["faults"]["criteria"]}
        assert {key: one["caught"]["value"] for key, one in report.items()} == {
            "wait": 1.0,
            "who": who,
            "away": 1.0,
            "short": 1.0,
        }
        assert ran.code == code
        assert ran.json["faults"]["false_alarms"]["hits"] == 0
    kinds = {(one["criterion"], one["kind"]) for one in ran.json["faults"]["faults"]}
    assert kinds == {
        ("wait", "deleted"),
        ("wait", "negated"),
        ("who", "deleted"),
        ("away", "planted"),
        ("short", "check"),
    }


def test_approve_needs_a_passing_test_of_the_version(cli: Cli, rubric: Path) -> None:
    failing = RUBRIC.replace("reward: {max: 0.2}", "reward: {min: 0.5}")
    rubric.write_text(failing)
    assert cli("rubrics", "import", rubric, "--draft").code == 0
    assert cli("rubrics", "review", "fridge@1", "submit").code == 0
    untested = cli("rubrics", "review", "fridge@1", "approve")
    assert untested.code == 2 and "rubricsvc rubrics test fridge@1 --judge" in untested.err
    with scripted_server(reader) as server:
        add_judge(cli, server.url)
        assert cli("rubrics", "test", "fridge@1", "--judge", "reader").code == 1
        failed = cli("rubrics", "review", "fridge@1", "approve")
        assert failed.code == 2 and "hasty" in failed.err
        rubric.write_text(RUBRIC)
        assert cli("rubrics", "import", rubric, "--parent", "fridge@1", "--draft").code == 0
        assert cli("rubrics", "review", "fridge@2", "submit").code == 0
        ran = cli("rubrics", "test", "fridge@2", "--judge", "reader", "--json")
    assert (ran.code, ran.json["stored"]) == (0, 2)
    assert cli("rubrics", "review", "fridge@2", "approve").code == 0
    assert "fridge@2 is approved already, by " in cli("rubrics", "review", "fridge@2", "approve").err
    assert "careful" in cli("rubrics", "show", "fridge").out
    tests = {ref: cli("rubrics", "show", ref, "--history", "--json").json["tests"] for ref in ("fridge@1", "fridge")}
    assert [[one["outcome"] for one in found] for found in tests.values()] == [["failed"], ["passed"]]


def test_review_and_test_take_several_versions(cli: Cli, rubric: Path) -> None:
    """All are judged in one batch, and one report says what did not pass, and why."""
    others = "\n---\n".join(
        f"name: fridge-{n}\nprompt: Why {n}?\ncriteria: [{{text: {text}, scale: {{no: 0, in part: 0.5, yes: 1}}}}]"
        for n, text in enumerate(("Says it.", "'Says {why}.'"), start=2)
    )
    failing = RUBRIC.replace("name: fridge", "name: fridge-failing").replace("wait: false", "wait: true")
    rubric.write_text("\n---\n".join((RUBRIC, others, failing)))
    assert cli("rubrics", "import", rubric, "--draft").code == 0
    shown = cli("rubrics", "show", "fridge-2")
    assert "newest draft" in shown.err and "Why 2?" in shown.out and "in part 0.5" in shown.out
    assert cli("rubrics", "show", "fridge-2", "--json").json["prompt"]["messages"][0]["content"] == "Why 2?"

    with scripted_server(reader) as server:
        add_judge(cli, server.url)
        assert cli("rubrics", "test", "fridge*", "--judge", "reader", "--json").code == 1
    assert [one["state"] for one in cli("rubrics", "review", "*", "submit", "--json").lines] == ["in_review"] * 4
    ran = cli("rubrics", "review", "fridge*", "approve", "--json")
    found = {one["rubric"]: (one.get("state"), one.get("refused", "")) for one in ran.lines}
    assert ran.code == 1 and "correct the" in found["fridge-failing@1"][1]
    assert {found[name][0] for name in ("fridge@1", "fridge-2@1", "fridge-3@1")} == {"approved"}
    assert cli("rubrics", "review", "*", "approve").code == 2 and cli("rubrics", "review", "none*", "retire").code == 3


def test_test_prints_why_a_verdict_failed(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    example = "{key: long, text: Take it at once., verdicts: {wait: true}}"
    file.write_text(f"prompt: Why?\ncriteria: [{{key: wait, text: Says to wait.}}]\nexamples: [{example}]\n")
    quotes = ["at once"]
    reply = {"criterion": "C1", "rationale": "It says the contrary.", "evidence": quotes, "verdict": "not_met"}
    with scripted_server(lambda *_: text_reply(json.dumps(reply))) as server:
        add_judge(cli, server.url, mode="written")
        ran = cli("rubrics", "test", file, "--judge", "reader")
        found = cli("rubrics", "test", file, "--judge", "reader", "--json").json["examples"][0]["verdicts"][0]
    assert ran.code == 1 and "It says the contrary." in ran.out and "at once" in ran.out, ran.out
    assert (found["rationale"], found["quotes"]) == ("It says the contrary.", ["at once"])
