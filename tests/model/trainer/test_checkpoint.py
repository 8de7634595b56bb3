"""Checkpoints: complete or absent, the newest few, and only for their own run."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import ConflictError, InvalidError
from tests.model.trainer.tiny import RUBRIC, TASKS, tiny_config, tiny_policy
from trainer import checkpoint
from trainer.config import OptimConfig, RunConfig
from trainer.optim import MasterAdamW
from trainer.rewards import Task


def test_save_keeps_newest_and_transformers_loads_them(tmp_path: Path) -> None:
    policy = tiny_policy(dtype=torch.bfloat16)
    optimizer = MasterAdamW(policy.model, OptimConfig())
    config = tiny_config(out=tmp_path, keep_checkpoints=2)
    for step in (1, 2, 10):
        checkpoint.save(config, step, policy, optimizer, {})
    assert checkpoint.steps(tmp_path) == [2, 10]
    folder = checkpoint.folder(tmp_path, 10) / "model"
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), policy.model.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(folder).decode([1, 2, 3]) == "abc"


def test_save_failure_keeps_earlier_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tiny_policy()
    optimizer = MasterAdamW(policy.model, OptimConfig())
    config = tiny_config(out=tmp_path)
    checkpoint.save(config, 1, policy, optimizer, {})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        checkpoint.save(config, 2, policy, optimizer, {})
    assert checkpoint.steps(tmp_path) == [1]
    monkeypatch.undo()
    checkpoint.save(config, 2, policy, optimizer, {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".")] == []


def run_config(**fields: object) -> RunConfig:
    judge = Judge(name="j", model="m")
    return RunConfig.model_validate({"steps": 1, "out": "x", "data": {"path": "d"}, "judge": judge, **fields})


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 9, "out": "y", "checkpoint_every": 7},
        {"data": {"path": "moved"}},
        {"optim": {"micro_batch": 2}},
        {"judge": {"name": "j", "model": "m", "endpoint": {"base_url": "http://elsewhere"}}},
    ],
)
def test_identity_ignores_settings_of_execution(change: dict[str, object]) -> None:
    assert checkpoint.identity(run_config(**change), TASKS, 0.0) == checkpoint.identity(run_config(), TASKS, 0.0)


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"optim": {"lr": 1e-3}}, {"judge": {"name": "j", "model": "other"}}, {"judge": "stored"}]
)
def test_identity_covers_what_is_learned(change: dict[str, object]) -> None:
    assert checkpoint.identity(run_config(**change), TASKS, 0.0) != checkpoint.identity(run_config(), TASKS, 0.0)


def test_resume_refuses_other_tasks(tmp_path: Path) -> None:
    policy, config = tiny_policy(), tiny_config(out=tmp_path)
    optimizer = MasterAdamW(policy.model, config.optim)
    checkpoint.save(config, 1, policy, optimizer, checkpoint.identity(config, TASKS, 0.0))
    other = [*TASKS[:-1], Task(Prompt.of("another"), RUBRIC)]
    with pytest.raises(ConflictError, match="tasks"):
        checkpoint.resume(config, optimizer, checkpoint.identity(config, other, 0.0))


@pytest.mark.parametrize("content", ["", "{}", "[]"])
def test_resume_names_damaged_checkpoint_and_the_way_out(tmp_path: Path, content: str) -> None:
    policy, config = tiny_policy(), tiny_config(out=tmp_path)
    optimizer = MasterAdamW(policy.model, config.optim)
    for step in (1, 2):
        checkpoint.save(config, step, policy, optimizer, {})
    (checkpoint.folder(tmp_path, 2) / "state.json").write_text(content)
    with pytest.raises(InvalidError, match="step-000002") as caught:
        checkpoint.resume(config, optimizer, {})
    assert "step-000001" in caught.value.hint


def test_resume_names_cut_optimizer_state(tmp_path: Path) -> None:
    policy, config = tiny_policy(), tiny_config(out=tmp_path)
    optimizer = MasterAdamW(policy.model, config.optim)
    checkpoint.save(config, 1, policy, optimizer, {})
    file = checkpoint.folder(tmp_path, 1) / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(InvalidError, match="step-000001") as caught:
        checkpoint.resume(config, optimizer, {})
    assert "--resume" in caught.value.hint


def test_steps_ignore_other_folders(tmp_path: Path) -> None:
    for name in ("step-foo", "step-000003"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert checkpoint.steps(tmp_path) == [3]


def test_write_config_failure_keeps_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(out=tmp_path)
    checkpoint.write_config(config, {"note": "first"})

    def full(path: Path, *_: object, **__: object) -> None:
        path.write_bytes(b"{")
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        checkpoint.write_config(config, {"note": "second"})
    assert json.loads((tmp_path / "config.json").read_bytes())["note"] == "first"
