"""`rubricsvc graders`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli, add_judge

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
    ran = cli("graders", "run", file, "--item", item, "--sample", "-", stdin="4\n")
    assert ran.code == 0 and "reward 1" in ran.out, ran.err
    ran = cli("graders", "run", "-", "--item", '{"answer": "5"}', "--sample", "4", "--json", stdin=json.dumps(STRING))
    assert (ran.code, ran.json["reward"], ran.json["metadata"]["type"]) == (0, 0.0, "string_check")
    assert not (tmp_path / "books").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({**STRING, "type": "vibe"}, "grader.type: "),
        ({**STRING, "input": "{{item.a.__class__}}"}, "grader.input: unsafe template"),
        ([STRING, STRING], "has 2 records, expected one grader"),
    ],
)
def test_run_refuses_invalid_graders(cli: Cli, tmp_path: Path, content: Any, why: str) -> None:
    file = written(tmp_path / "g.json", content)
    ran = cli("graders", "run", file, "--sample", "x")
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
