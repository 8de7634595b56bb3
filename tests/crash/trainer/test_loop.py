"""A training run whose process is killed again and again equals one that was never interrupted."""

from pathlib import Path

import torch

from tests.crash.trainer.killing import FORKS, begin, end, run_killed
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint, recording
from trainer.loop import train
from trainer.rewards import CallableRewards

KILLS = 12
STEPS = 40
FORKS.set_forkserver_preload([__name__])


def run(out: Path) -> None:
    """Start or resume the run, which saves a checkpoint after each step."""
    torch.set_num_threads(1)  # several for so small a model only wait for each other
    config = tiny_config(steps=STEPS, out=out, checkpoint_every=1)
    train(tiny_policy(), TASKS, CallableRewards(share_of_a), config, resume=(out / "config.json").exists())


def files(out: Path) -> dict[str, bytes]:
    folder = checkpoint.folder(out, STEPS)
    return {name: (folder / name).read_bytes() for name in ("optimizer.safetensors", "model/model.safetensors")}


def test_train_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert end(begin(run, whole)) == 0
    run_killed(run, killed, kills=KILLS, steps=STEPS, later=0.05)  # somewhere within a step or a checkpoint
    assert files(killed) == files(whole)
    assert [step["step"] for step in recording.read(killed)] == list(range(1, STEPS + 1))
    assert checkpoint.steps(killed) == [STEPS - 1, STEPS]
    assert not list((killed / "checkpoints").glob("damaged-*"))
