"""`runs sweep`: a tiny model that learns to write the letter a, and a judge that looks for it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.tiny_model import tiny_model

CONFIG = """
steps = 2
policy = {model = "policy", dtype = "float32"}
data = {path = "prompts.yaml"}
judge = {name = "letters", engine = "letters", model = "m"}
sampling = {prompts_per_step = 2, group_size = 2, max_new_tokens = 8}
eval = {path = "held-out.yaml", every = 2, samples = 2, greedy = false}
"""
SWEEP = """
base = "run.toml"
seeds = [0, 1]
vary = {optim.lr = [1e-3, 1e-2]}
"""
CONTROLS = """
base = "run.toml"
mode = "one_at_a_time"
vary = {control.reward = ["random", "frozen"]}
"""
GRID = """
base = "run.toml"
seeds = [0, 1, 2]
vary = {optim.lr = [1e-3, 1e-2], sampling.group_size = [2, 3]}
"""
COMMAND = "import sys, tests.letter_judge; from rubricsvc.cli.main import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture
def folder(cli: Cli, tmp_path: Path) -> Path:
    tiny_model(tmp_path / "policy")
    lines = [f'- {{id: p{n}, prompt: What is {n}?, criteria: ["Uses the word “a”."]}}\n' for n in range(9)]
    (tmp_path / "prompts.yaml").write_text("".join(lines[:3]))
    (tmp_path / "held-out.yaml").write_text("".join(lines[3:]))
    (tmp_path / "run.toml").write_text(CONFIG)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def diverge(path: Path) -> None:
    """Rewrite evaluations: the reward rises on all prompts, and a gold score stays where it was."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["gold"] = "strong"
        line["values"]["strong"] = {"mean": [0.5] * 6, "greedy": None}
        line["values"]["reward"]["mean"] = [0.1 + 0.4 * (line["step"] > 0)] * 6
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_runs_sweep_compares_a_run_with_its_controls(cli: Cli, folder: Path) -> None:
    """Controls are variants of a sweep; a sweep is not repeated, and continued with more steps only."""
    (folder / "sweep.toml").write_text(CONTROLS)
    ran = cli("runs", "sweep", "sweep.toml", "--json")
    assert ran.code == 0, ran.err
    base, *controls = ran.json["rows"]
    assert (base["variant"], base["difference"]) == ("base", None)
    assert [row["variant"] for row in controls] == ["control.reward = random", "control.reward = frozen"]
    for row in controls:
        holds_zero = row["difference"]["low"] <= 0 <= row["difference"]["high"]
        assert (row["result"] == "not_distinguishable") == holds_zero
    (random,) = (folder / "sweeps" / "sweep").glob("control.reward-random-*")
    (plain,) = (folder / "sweeps" / "sweep").glob("base-*")
    assert record_of(random)["control"] == {"reward": "random"} and record_of(plain)["control"] is None
    again = cli("runs", "sweep", "sweep.toml")
    assert again.code == 0 and "DIFFERENCE" in again.out and "kept     3" in again.out

    (folder / "run.toml").write_text(CONFIG.replace("max_new_tokens = 8", "max_new_tokens = 6"))
    refused = cli("runs", "sweep", "sweep.toml")
    assert refused.code == 2 and "sampling.max_new_tokens = 8 (now 6)" in refused.err, refused.err

    (folder / "run.toml").write_text(CONFIG.replace("steps = 2", "steps = 3"))
    resumed = cli("runs", "sweep", "sweep.toml", "--json")
    assert (resumed.code, resumed.json["trained"]) == (0, 3), resumed.err


def test_runs_sweep_refuses_a_sweep(cli: Cli, folder: Path) -> None:
    cases = [
        ("[1e-3, 1e-2]", "[1e-3, 0.001]", "are the same"),
        ("seeds = [0, 1]", "seeds = [1, 1]", "are the same"),
        ("[1e-3, 1e-2]", "[1e-3, nan]", "vary.optim.lr.1: "),
        ("[1e-3, 1e-2]", "[1979-05-27]", "vary.optim.lr.0: "),
        ("seeds = [0, 1]", f"seeds = [{2**64}]", "seeds.0: "),
        ("optim.lr", "optim.rate", "optim.rate"),
        ("[1e-3, 1e-2]", "[]", "vary"),
        ('base = "run.toml"', 'base = "none.toml"', "none.toml"),
    ]
    for old, new, named in cases:
        (folder / "sweep.toml").write_text(SWEEP.replace(old, new))
        ran = cli("runs", "sweep", "sweep.toml")
        assert ran.code in (2, 3) and named in ran.err, ran.err
        assert not (folder / "sweeps").exists()


def test_runs_sweep_resumes_after_a_kill_and_repeats_nothing(cli: Cli, folder: Path) -> None:
    """Of 2 x 2 settings and 3 seeds."""
    (folder / "sweep.toml").write_text(GRID)
    cells = folder / "sweeps" / "sweep"
    arguments = [sys.executable, "-c", COMMAND, "runs", "sweep", "sweep.toml"]
    with (folder / "log").open("wb") as log:
        killed = subprocess.Popen(arguments, stdout=log, stderr=log)
        while not any('"step": 2' in one.read_text() for one in cells.glob("*/eval.jsonl")):
            assert killed.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        killed.kill()
        killed.wait()
    ran = cli("runs", "sweep", "sweep.toml", "--json")
    assert ran.code == 0, ran.err
    found = ran.json
    assert found["cells"] == found["kept"] + found["trained"] == 12
    first, second, *_ = found["rows"]
    assert (first["variant"], first["difference"]) == ("optim.lr = 0.001, sampling.group_size = 2", None)
    assert (len(found["rows"]), second["seeds"], second["prompts"]) == (4, 3, 6)
    assert second["difference"]["low"] <= second["difference"]["value"] <= second["difference"]["high"]
    again = cli("runs", "sweep", "sweep.toml", "--json").json
    assert (again["kept"], again["trained"]) == (12, 0)
    for lines in (folder / "sweeps" / "sweep").glob("*/eval.jsonl"):
        diverge(lines)
    stops = CONFIG.replace("greedy = false", "greedy = false, stop_on_divergence = true")
    (folder / "run.toml").write_text(stops.replace("steps = 2", "steps = 4"))
    stopped = cli("runs", "sweep", "sweep.toml", "--json")
    assert (stopped.json["kept"], stopped.json["trained"]) == (12, 0), stopped.err
    (folder / "run.toml").write_text(stops.replace("max_new_tokens = 8", "max_new_tokens = 6"))
    other = cli("runs", "sweep", "sweep.toml")
    assert other.code == 2 and "sampling.max_new_tokens" in other.err, other.err
