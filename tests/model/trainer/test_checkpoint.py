"""Checkpoints: complete or absent, the newest few, and only for their own run."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rubricsvc.core.judge import Judge
from rubricsvc.errors import ConflictError, InvalidError, UnavailableError
from tests.model.trainer.tiny import tiny_config, tiny_policy
from trainer import checkpoint
from trainer.config import OptimConfig, RunConfig
from trainer.optim import MasterAdamW


def test_save_keeps_newest_and_transformers_loads_them(tmp_path: Path) -> None:
    policy = tiny_policy(dtype=torch.bfloat16)
    optimizer = MasterAdamW(policy.model, OptimConfig())
    config = tiny_config(out=tmp_path, keep_checkpoints=2)
    for step in (1, 2, 10):
        checkpoint.save(config, step, policy.save, optimizer, {})
    assert checkpoint.steps(tmp_path) == [2, 10]
    folder = checkpoint.folder(tmp_path, 10) / "model"
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), policy.model.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(folder).decode([1, 2, 3]) == "abc"
    (tmp_path / "plain").touch()
    plain = (tmp_path / "plain").stat().st_mode
    files = [path for path in checkpoint.folder(tmp_path, 10).rglob("*") if path.is_file()]
    assert {path.stat().st_mode for path in files} == {plain}, "weights are as readable as any file"


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may grow beyond 20 kB: what a full disk does to a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_save_without_room_keeps_earlier_checkpoints(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    policy = tiny_policy()
    optimizer = MasterAdamW(policy.model, OptimConfig())
    config = tiny_config(out=tmp_path)
    checkpoint.save(config, 1, policy.save, optimizer, {})
    request.getfixturevalue("small_files")
    with pytest.raises(UnavailableError, match=r"step-000002.*too large") as caught:
        checkpoint.save(config, 2, policy.save, optimizer, {})
    assert "--resume" in caught.value.hint
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]
    assert checkpoint.resume(config, optimizer, {}) == 1


def test_save_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    policy, config = tiny_policy(), tiny_config(out=tmp_path)
    (tmp_path / "checkpoints" / ".step-000001.part" / "model").mkdir(parents=True)
    checkpoint.save(config, 2, policy.save, MasterAdamW(policy.model, config.optim), {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]


def run_config(**fields: object) -> RunConfig:
    judge = Judge(name="j", model="m")
    return RunConfig.model_validate({"steps": 1, "out": "x", "data": {"path": "d"}, "judge": judge, **fields})


def test_identity_ignores_settings_of_execution() -> None:
    cases = [
        {"steps": 9, "out": "y", "checkpoint_every": 7},
        {"data": {"path": "moved"}},
        {"optim": {"micro_tokens": 60}},
        {"judge": {"name": "j", "model": "m", "endpoint": {"base_url": "http://elsewhere"}}},
    ]
    for change in cases:
        assert run_config(**change).identity("tasks", 0.0) == run_config().identity("tasks", 0.0)


def test_identity_covers_what_is_learned() -> None:
    cases = [{"seed": 1}, {"optim": {"lr": 1e-3}}, {"judge": {"name": "j", "model": "other"}}, {"judge": "stored"}]
    for change in cases:
        assert run_config(**change).identity("tasks", 0.0) != run_config().identity("tasks", 0.0)


def test_resume_refuses_other_tasks(tmp_path: Path) -> None:
    policy, config = tiny_policy(), tiny_config(out=tmp_path)
    optimizer = MasterAdamW(policy.model, config.optim)
    checkpoint.save(config, 1, policy.save, optimizer, config.identity("tasks", 0.0))
    with pytest.raises(ConflictError) as caught:
        checkpoint.resume(config, optimizer, config.identity("others", 0.0))
    assert caught.value.path == "data"


def damage(saved: Path, kind: str) -> None:
    """Damage a checkpoint as disks, full or failing, and people do."""
    optimizer, weights = saved / "optimizer.safetensors", saved / "model" / "model.safetensors"
    match kind:
        case "truncated optimizer":
            optimizer.write_bytes(optimizer.read_bytes()[:-500])
        case "zeroed optimizer":
            optimizer.write_bytes(bytes(optimizer.stat().st_size))
        case "flipped bit":
            content = bytearray(optimizer.read_bytes())
            content[-3] ^= 1
            optimizer.write_bytes(content)
        case "wrong shapes":
            save_file({name: torch.zeros(3) for name in load_file(optimizer)}, optimizer)
        case "truncated weights":
            weights.write_bytes(weights.read_bytes()[:500])
        case "no weights":
            weights.unlink()
        case "empty state":
            (saved / "state.json").write_text("")
        case "another state":
            (saved / "state.json").write_text("[]")
        case "another step":
            state = (saved / "state.json").read_text()
            (saved / "state.json").write_text(state.replace('"step": ', '"step": 1'))
        case "zeroed sums":
            (saved / "SHA256SUMS").write_bytes(bytes(200))
        case "no sums":
            (saved / "SHA256SUMS").unlink()
        case "truncated sums":
            lines = (saved / "SHA256SUMS").read_text().splitlines(keepends=True)
            (saved / "SHA256SUMS").write_text("".join(lines[:-1]))


DAMAGES = [
    "truncated optimizer", "zeroed optimizer", "flipped bit", "wrong shapes", "truncated weights", "no weights",
    "empty state", "another state", "another step", "zeroed sums", "no sums", "truncated sums",
]  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_resume_uses_the_newest_intact_checkpoint(tmp_path: Path, kind: str, logged: list[str]) -> None:
    policy, config = tiny_policy(), tiny_config(out=tmp_path)
    optimizer = MasterAdamW(policy.model, config.optim)
    checkpoint.save(config, 1, policy.save, optimizer, {})
    before = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    for master in optimizer.masters.values():
        master.add_(1.0)
    checkpoint.save(config, 2, policy.save, optimizer, {})
    damage(checkpoint.folder(tmp_path, 2), kind)
    assert checkpoint.resume(config, optimizer, {}) == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in optimizer.state().items())
    assert "step-000002" in logged[0] and "step-000001" in logged[1]
    assert checkpoint.steps(tmp_path) == [1] and (tmp_path / "checkpoints" / "damaged-step-000002").is_dir()


def test_resume_without_an_intact_checkpoint_names_all(tmp_path: Path) -> None:
    for kind in DAMAGES:
        policy, config = tiny_policy(), tiny_config(out=tmp_path)
        optimizer = MasterAdamW(policy.model, config.optim)
        for step in (1, 2):
            checkpoint.save(config, step, policy.save, optimizer, {})
            damage(checkpoint.folder(tmp_path, step), kind)
        with pytest.raises(InvalidError, match=r"step-000002.*step-000001") as caught:
            checkpoint.resume(config, optimizer, {})
        assert caught.value.hint
        assert checkpoint.steps(tmp_path) == [1, 2]


def test_resume_refuses_checkpoint_of_another_model(tmp_path: Path) -> None:
    config = tiny_config(out=tmp_path)
    policy, larger = tiny_policy(), tiny_policy(hidden_size=64)
    checkpoint.save(config, 1, larger.save, MasterAdamW(larger.model, config.optim), {})
    before = [param.clone() for param in policy.model.parameters()]
    with pytest.raises(InvalidError, match="another model") as caught:
        checkpoint.resume(config, MasterAdamW(policy.model, config.optim), {})
    assert "policy.model" in caught.value.hint
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
