"""Baselines at equal compute: the untouched policy, best-of-n of it, and best-of-n supervised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from rubricsvc.core.prompt import Completion
from tests.model.trainer.held_out import CountingRewards, eval_config, evaluation, evaluator, length
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import checkpoint
from trainer.data.tasks import Task
from trainer.evaluation.baselines import FOLDER, RunPolicies, read_baselines, run_baselines
from trainer.evaluation.evaluation import LINES
from trainer.evaluation.evaluator import Evaluator
from trainer.history import Metrics
from trainer.history import read as read_metrics
from trainer.loop import sample_step, train
from trainer.policies.policy import Policy
from trainer.rewards.source import CallableRewards, ScoredRollout

REWARDS = CallableRewards(share_of_a)
STEPS = 8


def baselines(config: Any, given: Evaluator | None = None, **options: Any) -> list[Metrics] | None:
    policies = RunPolicies(tiny_policy, tiny_policy)
    return run_baselines(config, policies, TASKS, REWARDS, given or evaluator(config), **options)


def mean(line: Metrics, score: str = "reward") -> float:
    value: float = line["scores"][score]["mean"]["value"]
    return value


def test_baselines_are_evaluated_on_the_same_prompts(tmp_path: Path) -> None:
    config = eval_config(tmp_path, steps=STEPS, every=STEPS)
    history = train(tiny_policy(), TASKS, REWARDS, config, evaluation=evaluation(config))
    lines = baselines(config)
    assert lines is not None and lines == read_baselines(tmp_path)
    start, best_of_n, supervised = lines
    assert [line["baseline"] for line in lines] == ["start", "best_of_n", "best_of_n_supervised"]
    assert {line["setup"] for line in lines} == {history.evaluations[0]["setup"]}
    assert start["scores"] == history.evaluations[0]["scores"], "the run's own evaluation is used again"
    assert (best_of_n["generated"], supervised["step"]) == (6 * 3 * 4, STEPS)
    assert mean(best_of_n) > mean(start)
    assert mean(supervised) > mean(start)
    assert best_of_n["scores"]["gold"]["mean_difference"]["value"] == pytest.approx(
        mean(best_of_n, "gold") - mean(start, "gold")
    )


def test_supervised_baseline_learns_the_best_samples_of_the_starting_policy() -> None:
    """The first step learns the best of each group; later groups are those of the starting policy as well."""
    config = tiny_config(steps=2, algorithm="best_of_n_supervised", optim={"lr": 1e-3, "updates_per_batch": 3})
    seen: list[list[str]] = []

    class Recording:
        def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
            seen.append([one.text for one in completions])
            return REWARDS.score(tasks, completions)

    history = train(tiny_policy(), TASKS, Recording(), config)
    expected = [list(sample_step(tiny_policy(), TASKS, config, step)[1].texts) for step in range(2)]
    assert seen == expected
    assert all("kl/start" not in step for step in history.steps)
    assert history.steps[0]["loss"] > 0, "a mean negative log-likelihood"

    policy = tiny_policy()
    train(policy, TASKS, REWARDS, config.model_copy(update={"steps": 1}))
    _, rollouts = sample_step(tiny_policy(), TASKS, config, 0)
    rewards = torch.tensor([share_of_a(TASKS[0].prompt, text) for text in rollouts.texts]).view(2, 4)
    best = rollouts.select(rewards.argmax(-1) + torch.tensor([0, 4]))
    assert likelihood(policy, best) > likelihood(tiny_policy(), best)


def likelihood(policy: Policy, rollouts: Any) -> float:
    with torch.no_grad():
        return float(policy.logprobs(rollouts, 1.0)[0].sum())


def test_baselines_continue_where_they_were_stopped(tmp_path: Path) -> None:
    config = eval_config(tmp_path, steps=STEPS, every=STEPS)
    stop = Event()

    def on_step(step: Metrics) -> None:
        if step["step"] == 3:
            stop.set()

    assert baselines(config, on_step=on_step, stop=stop) is None
    assert [line["baseline"] for line in read_baselines(tmp_path)] == ["start", "best_of_n"]
    gold = CountingRewards(length)
    steps: list[int] = []
    lines = baselines(config, evaluator(config, gold), on_step=lambda step: steps.append(step["step"]))
    assert lines is not None and len(lines) == 3
    assert steps == [4, 5, 6, 7, 8]
    assert [step for step, _ in gold.calls] == [8], "what is recorded is not evaluated again"
    trained = tmp_path / FOLDER / "best-of-n-supervised"
    assert [line["step"] for line in read_metrics(trained, LINES)] == [0, 8]
    assert checkpoint.steps(trained)[-1] == 8
    assert json.loads((trained / "config.json").read_text())["algorithm"] == "best_of_n_supervised"
    assert baselines(config) == lines
