"""Baselines of a training run at equal compute."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from rubricsvc.cli.output import ProgressBar, cell
from rubricsvc.cli.run_policy import load_policy

if TYPE_CHECKING:
    from trainer.config import RunConfig
    from trainer.data.tasks import Task
    from trainer.evaluation.evaluator import Evaluator
    from trainer.history import Metrics
    from trainer.recording.recorder import EvaluationRecorder
    from trainer.rewards.source import RewardSource


def baselines_of(
    run: RunConfig,
    tasks: Sequence[Task],
    rewards: RewardSource,
    evaluator: Evaluator,
    *,
    bar: ProgressBar,
    stop: Event,
    recorder: EvaluationRecorder | None,
) -> list[Metrics] | None:
    """Run the baselines that are missing; return their evaluations, None if it was stopped."""
    from trainer import checkpoint
    from trainer.evaluation.baselines import FOLDER, run_baselines

    def on_step(step: Metrics) -> None:
        bar.update(step["step"], run.steps, f"best-of-n supervised, reward {cell(step['reward'])}")

    bar.update(0, run.steps, "baselines")
    with checkpoint.locked(run.out / FOLDER):
        return run_baselines(
            run, partial(load_policy, run), tasks, rewards, evaluator, on_step=on_step, stop=stop, recorder=recorder
        )
