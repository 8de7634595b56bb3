"""The warm-up: demonstrations are learned in a run of their own, from which the run then begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from rubricsvc.core.prompt import Completion
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data.demonstrations import demonstrated
from trainer.data.tasks import Task
from trainer.history import Metrics
from trainer.policies.policy import Policy
from trainer.rewards.source import CallableRewards
from trainer.warm_up import FOLDER, is_warmed_up, warm_up, warmed_up_model

REWARDS = CallableRewards(share_of_a)


def shown(*texts: str) -> list[Task]:
    return [replace(task, demonstrations=tuple(Completion(text=text) for text in texts)) for task in TASKS]


def config(out: Path, **changes: Any) -> TrainConfig:
    demonstrations = {"path": "shown.jsonl", "steps": 6, "lr": 1e-2, **changes}
    return tiny_config(out=out, demonstrations=demonstrations, checkpoint_every=2)


def likelihood(policy: Policy, tasks: Sequence[Task]) -> float:
    return policy.logprobs(demonstrated(policy, tasks, 1, 0), 1.0)[0].sum().item()


def test_warm_up_learns_the_best_demonstrations(tmp_path: Path) -> None:
    settings, tasks = config(tmp_path), shown("aaaa", "bbbb")
    assert not is_warmed_up(settings)
    assert warm_up(settings, tiny_policy, tasks, REWARDS)
    assert is_warmed_up(settings)
    policy = tiny_policy()
    before = [likelihood(policy, shown(text)) for text in ("aaaa", "bbbb")]
    policy.model = policy.model.from_pretrained(warmed_up_model(settings))
    best, other = (likelihood(policy, shown(text)) - was for text, was in zip(("aaaa", "bbbb"), before, strict=True))
    assert best > 1 and best > other


def test_warm_up_continues_where_it_was_stopped(tmp_path: Path) -> None:
    steps: list[int] = []
    stop = Event()

    def on_step(step: Metrics) -> None:
        steps.append(step["step"])
        if step["step"] == 2:
            stop.set()

    settings, tasks = config(tmp_path), shown("aaaa")
    assert not warm_up(settings, tiny_policy, tasks, REWARDS, on_step=on_step, stop=stop)
    assert not is_warmed_up(settings)
    assert warm_up(settings, tiny_policy, tasks, REWARDS, on_step=on_step)
    assert steps == [1, 2, 3, 4, 5, 6]
    assert checkpoint.steps(tmp_path / FOLDER) == [6]
