"""`runs start` refuses a judge that was measured to be at chance: a tiny model, and judges that answer at once."""

import json
from pathlib import Path

import pytest

from tests.cli import Cli, add_judge
from tests.integration.rubricsvc.cli.test_judges import Sure, write_labels
from tests.tiny_model import tiny_model
from workers.engines import ENGINES

CONFIG = """
steps = 1
policy = {model = "policy", dtype = "float32"}
data = {path = "labels.jsonl"}
judge = "guess"
sampling = {prompts_per_step = 2, group_size = 2, max_new_tokens = 4}
"""


@pytest.fixture
def config(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(ENGINES, "guess", lambda _judge: Sure())
    tiny_model(tmp_path / "policy")
    add_judge(cli, "guess", engine="guess")
    path = tmp_path / "first.toml"
    path.write_text(CONFIG)
    return path


def test_runs_start_refuses_a_judge_at_chance_by_labels(cli: Cli, both: Cli, config: Path, tmp_path: Path) -> None:
    assert cli("labels", "import", write_labels(tmp_path, 0.5)).code == 0
    assert cli("jobs", "submit", "--judge", "guess", "--wait").code == 0
    there = both("runs", "start", config, only_there=True)
    assert there.code == 4 and "80 labels on all prompts" in there.err, there.err
    refused = cli("runs", "start", config)
    assert refused.code == 4, refused.err
    assert "accuracy" in refused.err and "80 labels on these prompts" in refused.err
    assert not (tmp_path / "runs" / "first").exists()

    forced = cli("runs", "start", config, "--force")
    assert forced.code == 0, forced.err
    record = json.loads((tmp_path / "runs" / "first" / "config.json").read_text())
    assert record["preflight_forced"] == ["accuracy"]
    config.write_text(CONFIG.replace("steps = 1", "steps = 2"))
    assert cli("runs", "start", config, "--resume").code == 0


def test_runs_preflight_samples_and_refuses_a_reward_without_a_signal(cli: Cli, config: Path, tmp_path: Path) -> None:
    """The policy never writes "looks good": all rewards are 0."""
    write_labels(tmp_path, 0.9)
    ran = cli("runs", "preflight", config, "--prompts", 3, "--json")
    assert ran.code == 4, ran.err
    rows = {row["name"]: row for row in ran.lines}
    assert list(rows) == [
        "accuracy", "attacks", "calibration", "repeatability", "sizes", "signal", "length", "form", "gold", "order",
        "cut_off", "time", "cost",
    ]  # fmt: skip
    assert [name for name, row in rows.items() if row["refuses"] and row["passed"] is False] == ["signal"]
    assert (rows["sizes"]["passed"], rows["accuracy"]["passed"]) == (True, None)
    assert " GB on cpu" in rows["sizes"]["value"]
    assert "max_new_tokens" in rows["cut_off"]["advice"]
    assert "4 completions in training and 0 in evaluations" in rows["time"]["value"]
    assert rows["cost"]["value"].startswith("4 verdicts by guess, ")
    assert (tmp_path / "runs" / "first.preflight.json").is_file()
    refused = cli("runs", "start", config)
    assert refused.code == 4 and "signal" in refused.err
    config.write_text(CONFIG.replace("max_new_tokens = 4", "max_new_tokens = 5"))
    other = cli("runs", "start", config)
    assert other.code == 0 and "of another configuration" in other.err
