"""`runs difficulty`, the file that it writes, and runs that use it: a tiny model, and a judge that counts letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tests.letter_judge  # noqa: F401 - registers the engine "letters"
from tests.cli import Cli
from tests.tiny_model import tiny_model

CONFIG = """
steps = 2
policy = {model = "policy", dtype = "float32"}
judge = {name = "letters", engine = "letters", model = "m"}
sampling = {prompts_per_step = 2, group_size = 4, max_new_tokens = 8}
"""


@pytest.fixture
def config(tmp_path: Path, rubric_file: Path) -> Path:
    tiny_model(tmp_path / "policy")
    path = tmp_path / "first.toml"
    path.write_text(f'{CONFIG}data = {{path = "rubrics.yaml", difficulty = "difficulty.jsonl"}}\n')
    return path


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "difficulty.jsonl").read_text().splitlines()]


def write(folder: Path, **pass_rates: float) -> None:
    lines = [line | {"pass_rate": pass_rates[line["prompt"]]} for line in written(folder)]
    (folder / "difficulty.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_runs_difficulty_measures_once_and_a_run_uses_it(cli: Cli, config: Path, tmp_path: Path) -> None:
    assert cli("runs", "start", config).code == 2, "the file does not exist yet"
    ran = cli("runs", "difficulty", config, "--samples", 3, "--json")
    assert ran.code == 0, ran.err
    assert [(line["prompt"], line["samples"], line["source"]) for line in ran.lines] == [
        ("one", 3, "sampled"),
        ("two", 3, "sampled"),
    ]
    assert all(0 <= line["pass_rate"] <= 1 and line["std"] >= 0 for line in ran.lines)
    assert [line["prompt"] for line in written(tmp_path)] == ["one", "two"]

    write(tmp_path, one=0.5, two=1.0)
    again = cli("runs", "difficulty", config, "--samples", 2, "--json")
    assert [line["selection"] for line in again.lines] == ["kept", "too_easy"], "nothing is measured again"
    assert "SELECTION" in cli("runs", "difficulty", config, "--samples", 2).out
    started = cli("runs", "start", config)
    assert started.code == 0, started.err
    assert "1 kept, 1 too easy" in started.err and "(of 1, repeated)" in started.err

    write(tmp_path, one=0.0, two=1.0)
    config.write_text(config.read_text().replace("steps = 2", 'steps = 2\nout = "other"'))
    refused = cli("runs", "start", config)
    assert refused.code == 2 and "1 too hard, 1 too easy" in refused.err
    measured = cli("runs", "difficulty", config, "--samples", 4, "--json")
    assert [line["samples"] for line in measured.lines] == [4, 4], "with more samples they are"


def test_runs_difficulty_uses_stored_rewards(cli: Cli, config: Path, tmp_path: Path) -> None:
    assert (
        cli(
            "judges", "add", "-f", "-", "--no-probe", stdin='{"name": "letters", "engine": "letters", "model": "m"}'
        ).code
        == 0
    )
    text = config.read_text().replace(
        'judge = {name = "letters", engine = "letters", model = "m"}', 'judge = "letters"'
    )
    config.write_text(text.replace(', difficulty = "difficulty.jsonl"', ""))
    assert cli("runs", "difficulty", config, "--stored").code == 0
    assert written(tmp_path) == []
    assert cli("runs", "start", config).code == 0
    stored = cli("runs", "difficulty", config, "--stored", "--json")
    assert stored.code == 0, stored.err
    assert {line["source"] for line in stored.lines} == {"stored"}
    steps = [json.loads(line) for line in (tmp_path / "runs" / "first" / "metrics.jsonl").read_text().splitlines()]
    counted = sum(line["samples"] for line in stored.lines)
    assert counted == 2 * 2 * 4
    mean = sum(line["mean"] * line["samples"] for line in stored.lines) / counted
    assert mean == pytest.approx(sum(step["reward"] for step in steps) / 2)


def test_runs_start_mixes_domains_by_weight_and_in_stages(cli: Cli, config: Path, tmp_path: Path) -> None:
    one, two = (tmp_path / "rubrics.yaml").read_text().splitlines(keepends=True)
    (tmp_path / "one.yaml").write_text(one)
    (tmp_path / "two.yaml").write_text(two)
    data = 'data = {domains = {a = {path = "one.yaml"}, b = {path = "two.yaml"}}, difficulty = "difficulty.jsonl"}'
    prompts = 'prompts = {weights = {a = 3, b = 1}, divide_by = "domain", stages = [0.5, 1.0], stage_steps = 1}'
    config.write_text(f"{CONFIG}{data}\n{prompts}\n".replace("steps = 2", "steps = 4"))
    assert cli("runs", "difficulty", config, "--samples", 2).code == 0
    write(tmp_path, one=0.5, two=0.5)
    ran = cli("runs", "start", config)
    assert ran.code == 0, ran.err
    record = json.loads((tmp_path / "runs" / "first" / "config.json").read_text())
    assert record["prompts"]["weights"] == {"a": 3.0, "b": 1.0}
    steps = cli("runs", "show", tmp_path / "runs" / "first", "--last", 4, "--json").lines
    assert {name for step in steps for name in step if name.startswith("reward/")} == {"reward/a", "reward/b"}
    config.write_text(config.read_text().replace("a = 3", "a = 2").replace("steps = 4", "steps = 5"))
    assert "prompts.weights" in cli("runs", "start", config, "--resume").err
