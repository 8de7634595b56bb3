"""`rubricsvc graders`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli, add_judge
from tests.scripted_server import error, labels, scripted_server, text_reply

STRING = {
    "type": "string_check",
    "name": "exact",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
SCORE = {
    "type": "score_model",
    "name": "good",
    "model": "gpt-x",
    "input": [{"role": "user", "content": "Grade {{sample.output_text}}."}],
    "range": [0, 10],
}
MULTI = {"type": "multi", "name": "both", "graders": {"a": STRING, "b": SCORE}, "calculate_output": "a + b / 10"}


def written(path: Path, grader: Any) -> Path:
    path.write_text(json.dumps(grader))
    return path


@pytest.mark.usefixtures("new_machine")
def test_run_needs_no_judge_or_database_without_models(cli: Cli, tmp_path: Path) -> None:
    file, item = written(tmp_path / "g.json", STRING), written(tmp_path / "item.json", {"answer": "4"})
    assert cli("graders", "validate", file).out.split() == ["PART", "TYPE", "MODEL", "exact", "string_check", "-"]
    assert cli("graders", "validate", file, "--json").json == {"grader": STRING}
    ran = cli("graders", "run", file, "--item", item, "--sample", "-", stdin="4\n")
    assert ran.code == 0 and "reward 1" in ran.out, ran.err
    ran = cli("graders", "run", "-", "--item", '{"answer": "5"}', "--sample", "4", "--json", stdin=json.dumps(STRING))
    assert (ran.code, ran.json["reward"], ran.json["metadata"]["type"]) == (0, 0.0, "string_check")
    assert not (tmp_path / "books").exists()


def test_run_asks_a_judge_at_a_url(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path / "g.json", MULTI)
    with scripted_server(text_reply('{"steps": [], "result": 4}')) as server:
        args = ("graders", "run", file, "--sample", "4", "--item", '{"answer": "4"}', "--judge", server.url)
        ran = cli(*args, "--json")
        server.script = labels(A=0.5, F=0.5)
        readout = cli(*args, "--mode", "readout", "--json")
    assert ran.json["reward"] == 1.4 and ran.json["sub_rewards"] == {"a": 1.0, "b": 4.0}, ran.err
    assert ran.json["model_grader_token_usage_per_model"]["scripted"]["total_tokens"] == 11
    assert readout.json["sub_rewards"]["b"] == 2.5


def test_run_without_a_reward_exits_with_1(cli: Cli, tmp_path: Path) -> None:
    file = written(tmp_path / "g.json", MULTI)
    with scripted_server(error(400, "no such model")) as server:
        args = ("graders", "run", file, "--sample", "4", "--item", '{"answer": "4"}', "--judge", server.url)
        ran, table = cli(*args, "--json"), cli(*args)
    assert (ran.code, ran.json["reward"]) == (1, None)
    assert ran.json["metadata"]["errors"]["model_grader_server_error"]
    assert table.code == 1 and "reward -" in table.out and "no such model" in table.out


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({**STRING, "type": "vibe"}, "grader.type: "),
        ({**STRING, "input": "{{item.a.__class__}}"}, "grader.input: unsafe template"),
        ([STRING, STRING], "has 2 records, expected one grader"),
    ],
)
def test_validate_and_run_refuse_invalid_graders(cli: Cli, tmp_path: Path, content: Any, why: str) -> None:
    file = written(tmp_path / "g.json", content)
    for ran in (cli("graders", "validate", file), cli("graders", "run", file, "--sample", "x")):
        assert ran.code == 2 and why in ran.err


def test_run_refuses_a_missing_judge_and_invalid_items(cli: Cli, tmp_path: Path) -> None:
    ran = cli("graders", "run", written(tmp_path / "g.json", SCORE), "--sample", "x")
    assert ran.code == 2 and "gpt-x" in ran.err and "--judge" in ran.err
    for item, why in (("{", "--item"), ("[1]", "item:"), ('{"messages": 1}', "messages")):
        ran = cli("graders", "run", written(tmp_path / "g.json", STRING), "--sample", "x", "--item", item)
        assert ran.code == 2 and why in ran.err


def test_items_with_graders_are_scored_as_jobs(cli: Cli, tmp_path: Path) -> None:
    items = [
        {"item": {"messages": [{"role": "user", "content": f"{n} + 1?"}], "answer": str(n + 1)}, "grader": STRING}
        for n in (1, 2)
    ]
    file = tmp_path / "items.jsonl"
    file.write_text("\n".join(json.dumps({**item, "model_sample": "2"}) for item in items))
    assert cli("rubrics", "import", file, "--format", "openai_grader").code == 0
    add_judge(cli, "none", engine="none", model="none")
    ran = cli("jobs", "submit", "--judge", "none", "--wait", "--json")
    assert ran.code == 0, ran.err
    assert [line["reward"] for line in cli("jobs", "export", "1").lines] == [1.0, 0.0]
