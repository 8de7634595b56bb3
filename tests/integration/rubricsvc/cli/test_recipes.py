"""The recipes in miniature: every command and setting of theirs, with a tiny policy and as few steps as possible."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli import Cli
from tests.tiny_model import tiny_model
from trainer.evaluation import read_baselines

RECIPES = Path(__file__).parents[4] / "recipes"
MINIATURE = {
    'judge = "embedded"': 'judge = {name = "letters", engine = "letters", model = "m"}',
    'model = "embedded"': 'model = "policy"\ndtype = "float32"', "steps = 20\n": "steps = 1\n",
    "steps = 14\n": "steps = 1\n", "checkpoint_every = 5": "checkpoint_every = 1",
    "prompts_per_step = 4": "prompts_per_step = 1", "group_size = 8": "group_size = 2",
    "max_new_tokens = 80": "max_new_tokens = 4", "every = 10": "every = 1", "samples = 2": "samples = 1",
    "seeds = [0, 1, 2]": "seeds = [0]", "sampling.group_size = [4, 8]": "sampling.group_size = [2]",
}  # fmt: skip
"""What a recipe has, and what stands in its place; `research.toml` has all but the last two."""


def write_miniature(name: str, folder: Path) -> None:
    text = (RECIPES / name).read_text(encoding="utf-8")
    for old, new in MINIATURE.items():
        text = text.replace(old, new)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def project(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `make research` makes it; in the place of PostgreSQL's documents stand CPython's once more."""
    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path / "policy", context=8192)
    for collection, tasks in (("python", "tasks.jsonl"), ("postgresql", "other.jsonl")):
        assert cli("collections", "add", collection, "--python").code == 0
        options = ("--capability", "define", "--limit", "8", "--out", tasks)
        assert cli("prompts", "synthesize", collection, *options).code == 0
    return tmp_path


def test_every_recipe_is_tried() -> None:
    assert {path.name for path in RECIPES.glob("*.toml")} == {"research.toml", "sweep.toml"}
    texts = "".join(path.read_text(encoding="utf-8") for path in RECIPES.glob("*.toml"))
    assert not [old for old in MINIATURE if old not in texts]


def test_research(cli: Cli, project: Path) -> None:
    write_miniature("research.toml", project)
    ran = cli("runs", "start", "research.toml")
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in (project / "research" / "eval.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 1
    found = {line["baseline"] for line in read_baselines(project / "research")}
    assert {"without_tools", "empty_results", "script", "before_demonstrations"} <= found
    assert cli("runs", "report", "research", "--out", "report.html").code == 0


def test_sweep(cli: Cli, project: Path) -> None:
    for name in ("research.toml", "sweep.toml"):
        write_miniature(name, project)
    base = project / "research.toml"
    base.write_text(base.read_text().partition("baselines")[0])
    swept = cli("runs", "sweep", "sweep.toml")
    assert swept.code == 0, swept.err
    shutil.rmtree(project / "sweeps")
