"""`env try` with a file of prompts, and `env demonstrate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import Cli
from tests.tiny_model import tiny_model
from trainer.environments.tool_calls import call_text
from trainer.policies.policy import Policy

SUMS = """
- {name: product, prompt: What is 6 * 7?, reference: "42", criteria: [{text: It is right., check: math}]}
- {name: sum, prompt: What is 6 + 7?, criteria: [{text: It is polite.}]}
- {name: quotient, prompt: What is 6 / 7?, criteria: [{text: It is polite.}]}
"""
DEFINE = """
- prompt: What does “Vacuum” mean? Cite the page.
  criteria: [{text: Cites a page., check: cites}]
- prompt: What does “Quark” mean? Cite the page.
  criteria: [{text: Cites a page., check: cites}]
"""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two episodes: a call and an answer, and an answer."""
    script = iter([(call_text("calculate", expression="6 * 7"), "13"), ("42",)])
    monkeypatch.setattr(Policy, "texts", lambda self, rows: next(script))
    # the tiny model rarely ends a turn by itself: its end token is made certain
    monkeypatch.setattr(
        "trainer.policies.decoding.torch.isin", lambda tokens, _: tokens.new_ones(tokens.shape, dtype=bool)
    )


@pytest.mark.usefixtures("scripted")
def test_env_try_samples_prompts_of_a_file(cli: Cli, tmp_path: Path) -> None:
    tiny_model(tmp_path / "policy", context=1024)
    (tmp_path / "sums.yaml").write_text(SUMS)
    asked = ("--policy", "policy", "--file", "sums.yaml", "-n", 2, "--max-tokens", 400, "--json")
    tried = cli("env", "try", "calculator", *asked)
    assert tried.code == 0, tried.err
    product, total = tried.lines
    assert (product["name"], product["text"]) == ("product", "42")
    assert product["sampling"]["tools"] == {"turns": 2, "calls/calculate": 1}
    assert (total["prompt"], total["text"]) == ("What is 6 + 7?", "13")


def test_env_demonstrate_has_the_results_of_a_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "vacuum.md").write_text("# Vacuum\n\nA vacuum removes dead tuples from a table.\n")
    (tmp_path / "define.yaml").write_text(DEFINE)
    environment = '{name = "research", collection = "docs", snippet_chars = 0}'
    (tmp_path / "run.toml").write_text(
        f'steps = 1\nout = "run"\njudge = "j"\ndata = {{path = "define.yaml"}}\nenvironment = {environment}\n'
    )
    assert cli("collections", "add", "docs", "docs").code == 0
    shown = []
    for options in (("--collection", "docs"), ("--environment", "run.toml")):
        made = cli("env", "demonstrate", "define.yaml", *options, "--out", "made.jsonl")
        assert made.code == 0, made.err
        messages = json.loads((tmp_path / "made.jsonl").read_text())["messages"]
        shown.append(next(one["content"] for one in messages if one["role"] == "tool"))
    assert "removes dead tuples" in shown[0] and shown[1] == "[vacuum.md] Vacuum"
    refused = cli("env", "demonstrate", "define.yaml", "--environment", "calculator", "--out", "made.jsonl")
    assert refused.code == 2 and "research" in refused.err
