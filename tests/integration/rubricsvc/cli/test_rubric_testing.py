"""`rubricsvc rubrics test` and `try`: examples and planted faults by a scripted judge, and approval after a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.scripted_server import ScriptedReply, labels, scripted_server
from tests.tested_rubric import RUBRIC, reader


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
    assert "not measured" not in text.out and "FAIL" not in text.out


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
    assert cli("rubrics", "submit", "fridge@1").code == 0
    untested = cli("rubrics", "approve", "fridge@1")
    assert untested.code == 2 and "rubricsvc rubrics test fridge@1 --judge" in untested.err
    with scripted_server(reader) as server:
        add_judge(cli, server.url)
        assert cli("rubrics", "test", "fridge@1", "--judge", "reader").code == 1
        failed = cli("rubrics", "approve", "fridge@1")
        assert failed.code == 2 and "hasty" in failed.err
        rubric.write_text(RUBRIC)
        assert cli("rubrics", "import", rubric, "--parent", "fridge@1", "--draft").code == 0
        assert cli("rubrics", "submit", "fridge@2").code == 0
        ran = cli("rubrics", "test", "fridge@2", "--judge", "reader", "--json")
    assert (ran.code, ran.json["stored"]) == (0, 2)
    assert cli("rubrics", "approve", "fridge@2").code == 0
    assert "careful" in cli("rubrics", "show", "fridge").out
    steps = cli("rubrics", "history", "fridge", "--json").lines
    assert [(one["rubric"], one["test"]) for one in steps if "test" in one] == [
        ("fridge@1", "failed"),
        ("fridge@2", "passed"),
    ]
    assert "test passed" in cli("rubrics", "history", "fridge@2").out
