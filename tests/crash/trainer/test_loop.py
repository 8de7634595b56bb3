"""A training run whose process is killed again and again equals one that was never interrupted."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import torch

from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint, recording
from trainer.loop import train
from trainer.rewards import CallableRewards

KILLS = 12
STEPS = 40
FORKS = multiprocessing.get_context("forkserver")  # its children need not load torch again
FORKS.set_forkserver_preload([__name__])


def run(out: Path) -> None:
    """Start or resume the run, which saves a checkpoint after each step."""
    torch.set_num_threads(1)  # several for so small a model only wait for each other
    config = tiny_config(steps=STEPS, out=out, checkpoint_every=1)
    train(tiny_policy(), TASKS, CallableRewards(share_of_a), config, resume=(out / "config.json").exists())


def files(out: Path) -> dict[str, bytes]:
    folder = checkpoint.folder(out, STEPS)
    return {name: (folder / name).read_bytes() for name in ("optimizer.safetensors", "model/model.safetensors")}


def begin(run: Callable[[Path], None], out: Path) -> ForkServerProcess:
    process = FORKS.Process(target=run, args=(out,))
    process.start()
    return process


def end(process: ForkServerProcess) -> int | None:
    process.join()
    code = process.exitcode
    process.close()
    return code


def run_killed(run: Callable[[Path], None], out: Path, *, kills: int, steps: int, later: float) -> None:
    """Run to the end after some kills, each up to ``later`` seconds after a step."""
    chance = random.Random(0)
    for kill in range(kills):
        process = begin(run, out)
        while len(recording.read(out)) < steps * (kill + 1) // (kills + 2) and process.is_alive():
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, later))
        process.kill()
        assert end(process) == -signal.SIGKILL
    assert end(begin(run, out)) == 0


def test_train_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert end(begin(run, whole)) == 0
    run_killed(run, killed, kills=KILLS, steps=STEPS, later=0.05)  # somewhere within a step or a checkpoint
    assert files(killed) == files(whole)
    assert [step["step"] for step in recording.read(killed)] == list(range(1, STEPS + 1))
    assert checkpoint.steps(killed) == [STEPS - 1, STEPS]
    assert not list((killed / "checkpoints").glob("damaged-*"))
