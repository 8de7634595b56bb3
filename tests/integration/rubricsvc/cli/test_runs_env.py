"""`runs start` with [environment], and `env try`, with a tiny model that calls no tool by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import tests.letter_judge  # noqa: F401 - registers the engine "letters"
from tests.cli import Cli
from tests.tiny_model import tiny_model
from trainer.environments.tool_calls import call_text
from trainer.policies.policy import Policy

CONFIG = """
steps = 2
policy = {model = "policy", dtype = "float32"}
data = {path = "rubrics.yaml"}
judge = {name = "letters", engine = "letters", model = "m"}
sampling = {prompts_per_step = 2, group_size = 2, max_new_tokens = 8}
"""
LETTERS = "[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t]"
CHECKED = f"""
- prompt: What is 6 * 7?
  criteria: [{{text: Has letters., check: {{contains: {{terms: {LETTERS}, mode: share}}}}}}]
"""
CALCULATOR = '[environment]\nname = "calculator"\nmax_tokens = 64\n'


@pytest.fixture
def config(tmp_path: Path, rubric_file: Path) -> Path:
    tiny_model(tmp_path / "policy", context=1024)
    path = tmp_path / "first.toml"
    path.write_text(CONFIG + CALCULATOR)
    return path


def test_run_in_an_environment_records_trajectories(cli: Cli, config: Path, tmp_path: Path) -> None:
    ran = cli("runs", "start", config)
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in (tmp_path / "runs" / "first" / "metrics.jsonl").read_text().splitlines()]
    assert [line["tools/turns"] for line in lines] == [1.0, 1.0]
    assert lines[0]["tools/calls"] == 0
    (shown,) = cli("completions", "show", 1, "--json").lines
    stored = shown["completion"]
    assert stored["sampling"]["tools"] == {"turns": 1}
    assert stored["messages"][0]["role"] == "assistant"


def test_resumed_run_in_an_environment_equals_uninterrupted(cli: Cli, config: Path, tmp_path: Path) -> None:
    (tmp_path / "rubrics.yaml").write_text(CHECKED)
    settings = CONFIG.replace("group_size = 2, max_new_tokens = 8", "group_size = 4, max_new_tokens = 24") + CALCULATOR
    config.write_text(settings)
    assert cli("runs", "start", config).code == 0
    lines = (tmp_path / "runs" / "first" / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line)["grad_norm"] > 0 for line in lines), "else any resume would pass"
    longer = tmp_path / "longer.toml"
    longer.write_text(settings.replace("steps = 2", 'steps = 1\nout = "longer"'))
    assert cli("runs", "start", longer).code == 0
    longer.write_text(settings.replace("steps = 2", 'steps = 2\nout = "longer"'))
    assert cli("runs", "start", longer, "--resume").code == 0
    first, second = (
        sorted((tmp_path / run).rglob("step-000002/model/model.safetensors")) for run in ("runs/first", "longer")
    )
    assert first[0].read_bytes() == second[0].read_bytes()


@pytest.mark.parametrize(
    ("table", "code", "path"),
    [
        ('name = "research"', 2, "environment"),
        ('name = "calculator"\ncollection = "x"', 2, "environment"),
        ('name = "calculater"', 2, "environment.name"),
        ('name = "research"\ncollection = "nowhere"', 3, "nowhere"),
        ('name = "calculator"\nmax_tokens = 1024', 2, "environment.max_tokens"),
    ],
)
def test_wrong_environment_is_refused(cli: Cli, config: Path, table: str, code: int, path: str) -> None:
    config.write_text(f"{CONFIG}[environment]\n{table}\n")
    ran = cli("runs", "start", config)
    assert (ran.code, path in ran.err) == (code, True), ran.err


def test_env_try_prints_a_trajectory(cli: Cli, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = iter([call_text("calculate", expression="6 * 7"), "It is 42."])
    monkeypatch.setattr(Policy, "texts", lambda self, rows: (next(script),))
    # the tiny model rarely ends a turn by itself: its end token is made certain
    monkeypatch.setattr(
        "trainer.policies.decoding.torch.isin", lambda tokens, _: torch.ones_like(tokens, dtype=torch.bool)
    )
    asked = ("env", "try", "calculator", "--policy", "policy", "--prompt", "What is 6 * 7?", "--max-tokens", "400")
    tried = cli(*asked)
    assert tried.code == 0, tried.err
    assert tried.out.splitlines() == [
        "[assistant]",
        '[calls calculate({"expression": "6 * 7"})]',
        "[tool calculate]",
        "42",
        "[assistant]",
        "It is 42.",
    ]


def test_env_try_without_prompt_is_refused(cli: Cli) -> None:
    assert cli("env", "try", "calculator").code == 2
    assert cli("env", "try", "research", "--prompt", "?").code == 2
    assert cli("env", "try", "research", "--prompt", "?", "--collection", "nowhere").code == 3
