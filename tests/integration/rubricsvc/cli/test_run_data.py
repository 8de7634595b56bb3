"""The prompts of a run that mixes domains: no setting may leave one without prompts."""

from __future__ import annotations

import json
from pathlib import Path

from rubricsvc.errors import InvalidError
from trainer.config import load_config
from trainer.run.inputs import Logged, RunTasks, find_tasks

CONFIG = """
steps = 2
policy = {model = "policy"}
judge = "strong"
data.domains.a.path = "a.yaml"
data.domains.b.path = "b.yaml"
"""


def tasks(folder: Path, settings: str) -> RunTasks:
    """Return the prompts of a run whose domain a has one prompt, and b nine."""
    prompts = [f"- {{prompt: What is b{number}?, criteria: [Says it.]}}\n" for number in range(9)]
    (folder / "a.yaml").write_text("- {prompt: What is a?, criteria: [Says it.]}\n")
    (folder / "b.yaml").write_text("".join(prompts))
    (folder / "run.toml").write_text(CONFIG + settings)
    return find_tasks(load_config(folder / "run.toml"), Logged())


def test_run_tasks_refuses_a_share_that_holds_out_a_domain(tmp_path: Path) -> None:
    weights = ("", "prompts.weights = {a = 1, b = 1}\n", "prompts.weights = {b = 1}\n")
    paths: list[list[str]] = []
    for seed in range(8):
        paths.append([])
        for setting in weights:
            try:
                tasks(tmp_path, f"seed = {seed}\neval.share = 0.5\n{setting}")
                paths[-1].append("")
            except InvalidError as error:
                paths[-1].append(error.path)
    without_a = ["eval.share", "eval.share", ""]
    assert all(one in (without_a, ["", "", ""]) for one in paths)
    assert without_a in paths and ["", "", ""] in paths


def test_run_tasks_divides_demonstrations_among_prompts(tmp_path: Path) -> None:
    lines = [{"prompt": f"What is {name}?", "text": text} for name in ("b1", "a") for text in ("It.", "That.")]
    (tmp_path / "shown.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = tasks(tmp_path, 'demonstrations.path = "shown.jsonl"\n')
    assert [(task.domain, len(task.demonstrations)) for task in found.demonstrated] == [("a", 2), ("b", 2)]
    assert len(found.train) > 2 and not any(task.demonstrations for task in found.train)
