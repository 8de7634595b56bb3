"""A policy learns what is rewarded, and nothing where all rewards are the same."""

import pytest
import torch

from rubricsvc.core.prompt import Prompt
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from trainer import loop
from trainer.policies.policy import Policy
from trainer.rewards import CallableRewards

REWARDS = CallableRewards(share_of_a)


def parameters(policy: Policy) -> list[torch.Tensor]:
    return [param.detach().clone() for param in policy.model.parameters()]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_train_raises_reward_unless_reward_is_constant(seed: int) -> None:
    sampling = {"prompts_per_step": 4, "group_size": 8, "max_new_tokens": 8}
    config = tiny_config(steps=20, seed=seed, sampling=sampling)
    rewards = [step["reward"] for step in loop.train(tiny_policy(seed), TASKS, REWARDS, config).steps]
    assert sum(rewards[:5]) / 5 < 0.2 and sum(rewards[-5:]) / 5 > 0.5

    policy = tiny_policy(seed)
    before = parameters(policy)
    written: list[str] = []

    def constant(_: Prompt, text: str) -> float:
        written.append(text)
        return 0.5

    history = loop.train(policy, TASKS, CallableRewards(constant), config)
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(policy), strict=True))
    assert [step["frac_reward_zero_std"] for step in history.steps] == [1.0] * 20
    last = "".join(written[-5 * 32 :])
    assert last.count("a") / len(last) < 0.2
