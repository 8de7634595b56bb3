"""`rubricsvc graders`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli

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
