"""Dynamic sampling: groups without a signal are replaced, in bounded rounds, the same way after a resume."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rubricsvc.core.prompt import Completion, Prompt
from tests.model.trainer.tiny import RUBRIC, tiny_config, tiny_policy
from trainer.config import TrainConfig
from trainer.data.tasks import Task
from trainer.loop import train
from trainer.policies.rollouts import join
from trainer.recording import read as read_metrics
from trainer.rewards import CallableRewards, ScoredRollout

TASKS = [Task(Prompt.of(f"{kind} {number}"), RUBRIC) for kind in ("flat", "live") for number in range(6)]


def only_live(prompt: Prompt, text: str) -> float:
    """Return the same reward for all completions of half of the prompts."""
    return sum(map(ord, text)) / 1000 if prompt.text.startswith("live") else 0.5


class Seen(CallableRewards):
    """Rewards that remember the prompts of each call."""

    def __init__(self) -> None:
        super().__init__(only_live)
        self.calls: list[list[str]] = []

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        self.calls.append([task.prompt.text for task in tasks[::4]])
        return super().score(tasks, completions)


def config(max_resamples: int, **fields: Any) -> TrainConfig:
    sampling = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 8, **fields.pop("sampling", {})}
    prompts = {"max_resamples": max_resamples} if max_resamples else None
    return tiny_config(steps=3, sampling=sampling, prompts=prompts, **fields)


def test_train_replaces_groups_without_signal() -> None:
    seen = Seen()
    history = train(tiny_policy(), TASKS, seen, config(8))
    plain = train(tiny_policy(), TASKS, CallableRewards(only_live), config(0))
    assert max(step["frac_reward_zero_std"] for step in plain.steps) > 0
    assert [step["frac_reward_zero_std"] for step in history.steps] == [0.0] * 3
    assert sum(step["resample/kept_groups"] for step in history.steps) > 0
    assert all(step["resample/rounds"] <= 8 for step in history.steps)
    calls = iter(seen.calls)
    for step in history.steps:
        tried = [name for _ in range(step["resample/rounds"] + 1) for name in next(calls)]
        assert len(tried) == len(set(tried)), "no prompt is tried twice in a step"
        assert len(tried) == 4 + step["resample/sampled_groups"]
    assert "resample/rounds" not in plain.steps[0]


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_train_with_replaced_groups_resumes_exactly(tmp_path: Path, top_p: float) -> None:
    def run(out: Path, steps: int, resume: bool = False) -> list[torch.Tensor]:
        policy = tiny_policy()
        settings = config(3, out=out, sampling={"top_p": top_p}, optim={"lr": 1e-2, "kl_every": 1}).model_copy(
            update={"steps": steps}
        )
        train(policy, TASKS, CallableRewards(only_live), settings, resume=resume)
        return list(policy.model.parameters())

    whole = run(tmp_path / "whole", 3)
    run(tmp_path / "cut", 2)
    resumed = run(tmp_path / "cut", 3, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))
    steps = read_metrics(tmp_path / "whole")
    assert all(step["kl/start"] is not None and step["grad_norm"] > 0 for step in steps)
    assert sum(step["resample/kept_groups"] for step in steps) > 0


def test_join_keeps_log_probabilities_and_gradients() -> None:
    """Joined batches have other paddings; what is computed of their completions is the same."""
    for top_p in [1.0, 0.7]:
        policy = tiny_policy()
        settings = config(1, sampling={"top_p": top_p}).sampling
        parts = [
            policy.sample([Prompt.of(text)], 3, settings.model_copy(update={"max_new_tokens": new}), seed)
            for seed, (text, new) in enumerate([("a", 3), ("a much longer prompt", 8)])
        ]
        joined = join(parts)
        logp, entropy = policy.logprobs(joined, 1.0)
        for place, part in enumerate(parts):
            alone, alone_entropy = policy.logprobs(part, 1.0)
            width = part.ids_BT.shape[1]
            rows = slice(3 * place, 3 * place + 3)
            torch.testing.assert_close(logp[rows, :width], alone, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(entropy[rows, :width], alone_entropy, rtol=1e-4, atol=1e-5)
        torch.autograd.backward(logp.sum())
        assert all(param.grad is None or param.grad.isfinite().all() for param in policy.model.parameters())
        assert joined.texts == parts[0].texts + parts[1].texts
