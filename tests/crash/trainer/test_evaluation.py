"""The evaluations of a run whose process is killed again and again have no gaps and no doubles."""

from pathlib import Path

import torch

from tests.crash.trainer.killing import begin, end, run_killed
from tests.model.trainer.held_out import eval_config, evaluation
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_policy
from trainer import recording
from trainer.evaluation import LINES, saved_best
from trainer.loop import train
from trainer.recording import Metrics
from trainer.rewards import CallableRewards

KILLS = 8
STEPS = 24


def run(out: Path) -> None:
    """Start or resume the run, which evaluates after every second step and saves after every third."""
    torch.set_num_threads(1)
    config = eval_config(out, steps=STEPS, checkpoint_every=3)
    resume = (out / "config.json").exists()
    train(tiny_policy(), TASKS, CallableRewards(share_of_a), config, resume=resume, evaluation=evaluation(config))


def timeless(out: Path) -> list[Metrics]:
    return [
        {name: value for name, value in line.items() if name != "eval_time"}
        for line in sorted(recording.read(out, LINES), key=lambda line: int(line["step"]))
    ]


def test_evaluations_of_a_killed_run_equal_those_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert end(begin(run, whole)) == 0
    run_killed(run, killed, kills=KILLS, steps=STEPS, later=0.1)  # within a step, an evaluation or the best checkpoint
    assert [line["step"] for line in timeless(killed)] == list(range(0, STEPS + 1, 2))
    assert timeless(killed) == timeless(whole)
    best, expected = saved_best(killed), saved_best(whole)
    assert best is not None and expected is not None
    assert (best["step"], best["value"]) == (expected["step"], expected["value"])
    assert len(list((killed / "best").glob("step-*"))) == 1
