"""The warm-up of a run: the policy learns demonstrations before it is rewarded.

It is a run of its own in ``out/demonstrations``, which ends before the run begins: of each prompt's demonstrations the
best by the run's reward is learned by its likelihood (`trainer.algorithms.supervised`), so that those which the rubric
gives little are not learned where there are better ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from rubricsvc.errors import InvalidError
from trainer import checkpoint
from trainer.config import DemonstrationsConfig, TrainConfig
from trainer.data.tasks import Task
from trainer.history import Metrics
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.rewards.source import RewardSource

FOLDER = "demonstrations"


def warmed_up_model(config: TrainConfig) -> Path:
    """Return the folder of the model after the warm-up."""
    folder, settings = _warm_up_of(config)
    return checkpoint.folder(folder, settings.steps) / "model"


def is_warmed_up(config: TrainConfig) -> bool:
    """Return whether the warm-up of a run is done, or it has none."""
    if config.demonstrations is None:
        return True
    folder, settings = _warm_up_of(config)
    return checkpoint.is_finished(folder, settings.steps)


def warm_up(
    config: TrainConfig,
    load: Callable[[], Policy],
    tasks: Sequence[Task],
    rewards: RewardSource,
    *,
    on_step: Callable[[Metrics], None] | None = None,
    stop: Event | None = None,
    record: Mapping[str, Any] | None = None,
) -> bool:
    """Learn the demonstrations of tasks, or continue to; return whether it is done.

    Args:
        config: Settings of the run, with ``demonstrations`` and ``out``.
        load: Returns the untouched policy.
        tasks: The prompts to train on that have demonstrations.
        rewards: The reward of the run.
        on_step: Called with the metrics of each step of the warm-up.
        stop: When set, the warm-up ends after the current step, and goes on when it is called again.
        record: Plain data for the ``config.json`` of the warm-up.
    """
    folder, _ = _warm_up_of(config)
    options: dict[str, Any] = {"on_step": on_step, "stop": stop, "record": record}
    history = train(load(), tasks, rewards, warm_up_config(config, tasks), resume=checkpoint.has_run(folder), **options)
    return not history.stopped


def warm_up_config(config: TrainConfig, tasks: Sequence[Task]) -> TrainConfig:
    """Return the settings of the warm-up of a run."""
    folder, settings = _warm_up_of(config)
    most = max(2, *(len(task.demonstrations) for task in tasks))  # a group has at least two
    group_size = min(most, config.sampling.group_size)
    changes: dict[str, Any] = {
        "algorithm": "best_of_n_supervised",
        "out": folder,
        "steps": settings.steps,
        "keep_checkpoints": 1,
        "demonstrations": None,
        "prompts": None,
        "control": None,
        "evolve": None,
        "eval": None,
        "sampling": config.sampling.model_copy(update={"group_size": group_size}),
        "optim": config.optim.model_copy(update={"lr": settings.lr, "kl_beta": 0.0, "kl_every": 0}),
    }
    return config.model_copy(update=changes)


def _warm_up_of(config: TrainConfig) -> tuple[Path, DemonstrationsConfig]:
    if config.out is None or config.demonstrations is None:
        raise InvalidError("a warm-up needs demonstrations, and the folder of the run", hint="set both", path="out")
    return config.out / FOLDER, config.demonstrations
