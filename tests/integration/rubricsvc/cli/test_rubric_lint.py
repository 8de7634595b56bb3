"""`rubricsvc rubrics lint`: findings, exit codes, --fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli, Ran
from tests.rubric_writer import completion_in
from tests.scripted_server import ScriptedReply, error, labels, scripted_server

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
    assert found[:2] == [("sign", "sign"), ("empty-passes", "short")]
    about_two = {(rule, key) for rule in ("two-questions", "near-duplicate") for key in ("two", "copy")}
    assert set(found[2:]) == {("dominant-weight", "sign"), *about_two}
    assert ran.lines[0]["name"] == "one" and all(line["rubric"] == "one" for line in ran.lines[1:])
    text = cli("rubrics", "lint", broken)
    assert text.code == 1 and "\none\n" in text.out and "fix: " in text.out


SOUND = """name: dose
prompt: What is the dose?
criteria:
  - {key: amount, text: Says that the dose is 400 mg., weight: 2}
  - {key: fault, text: Recommends twice the dose., weight: -3}
  - {key: short, text: Has at most 50 words., check: {words: {min: 1, max: 50}}}
"""


def critic(_number: int, request: dict[str, Any]) -> ScriptedReply:
    """Doubt the sign of the first criterion, and be away when asked about readers."""
    question = request["messages"][-1]["content"].rpartition("</completion-")[2]
    if "two careful readers" in question:
        return error(503)
    doubts = "whose sign fits" in question and "400 mg" in completion_in(request)
    return labels(No=0.8, Yes=0.2) if doubts else labels(Yes=0.97, No=0.02)


def with_model(cli: Cli, *options: object, script: Any = critic, stdin: str = SOUND, **fields: Any) -> tuple[Ran, int]:
    """Lint with a scripted judge; return what was printed and the number of requests."""
    price = {"prompt": 1.0, "completion": 2.0}
    with scripted_server(script) as server:
        endpoint = {"base_url": server.url, "max_retries": 0, "price": price}
        judge = {"name": "critic", "model": "scripted", "endpoint": endpoint, **fields}
        assert cli("judges", "add", "-f", "-", "--no-probe", stdin=json.dumps(judge)).code == 0
        return cli("rubrics", "lint", "-", "--with-model", "critic", *options, stdin=stdin), server.count


def test_lint_with_model_prints_findings_and_what_was_not_measured(cli: Cli) -> None:
    ran, requests = with_model(cli, "--json")
    assert (ran.code, requests) == (0, 12), ran.err
    assert rules(ran.lines) == [("model/sign", "amount")]
    (finding,) = [line for line in ran.lines if "rule" in line]
    assert (finding["judge"], finding["value"], finding["rubric"]) == ("critic", pytest.approx(0.2), "dose")
    assert [(one["not_measured"], one["criterion"]) for one in ran.lines if "not_measured" in one] == [
        ("model/same-verdict", "amount"),
        ("model/same-verdict", "fault"),
    ]
