"""Completions of a policy: what a step samples, and what it answers outside of training."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rubricsvc.core.prompt import Completion, Prompt
from trainer.config import SamplingConfig
from trainer.policy import Policy
from trainer.rollouts import Rollouts


def generate(
    policy: Policy, prompts: Sequence[Prompt], sampling: SamplingConfig, seed: int, step: int = 0
) -> list[list[Completion]]:
    """Sample ``sampling.group_size`` completions for each prompt; the same seed gives the same ones.

    Each completion carries its number in the group, so that two equal texts are two completions.
    """
    size = sampling.group_size
    rollouts = policy.sample(prompts, size, sampling, torch.Generator(policy.device).manual_seed(seed))
    numbered = [
        completion.model_copy(update={"sampling": {**completion.sampling, "seed": seed, "number": number % size}})
        for number, completion in enumerate(completions_of(rollouts, policy, step))
    ]
    return [numbered[start : start + size] for start in range(0, len(numbered), size)]


def completions_of(rollouts: Rollouts, policy: Policy, step: int) -> list[Completion]:
    """Return the rollouts as completions of ``policy`` after ``step`` steps."""
    return [
        Completion(text=text, policy=policy.name, step=step, sampling={"truncated": truncated})
        for text, truncated in zip(rollouts.texts, rollouts.truncated_B.tolist(), strict=True)
    ]
