"""Control rewards: what they are, that they are the same again, and what is learned from them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from rubricsvc.core.prompt import Completion
from tests.model.trainer.tiny import PROMPTS, TASKS, share_of_a, tiny_config, tiny_policy
from trainer.config import ControlName
from trainer.loop import train
from trainer.rewards.source import CallableRewards, ControlRewards

TEXTS = ["a", "ab", "abc", "abcd", "b", "ba", "bad", "baad"]
TASK_OF = [TASKS[0]] * 4 + [TASKS[1]] * 4
COMPLETIONS = [Completion(text=text, policy="p") for text in TEXTS]


def rewards_of(name: ControlName, seed: int = 0, missing: str = "") -> list[float | None]:
    source = CallableRewards(lambda prompt, text: None if text == missing else share_of_a(prompt, text))
    scored = ControlRewards(source, name, seed).score(TASK_OF, COMPLETIONS)
    return [one.reward.value for one in scored]


def test_shuffled_rewards_are_those_of_the_prompt_in_another_order() -> None:
    real = [share_of_a(PROMPTS[0], text) for text in TEXTS]
    found = rewards_of("shuffled")
    assert found != real
    assert Counter(found[:4]) == Counter(real[:4]) and Counter(found[4:]) == Counter(real[4:])
    assert rewards_of("shuffled", missing="abc")[2] is None


def test_frozen_rewards_leave_the_policy_as_it_is() -> None:
    policy, start = tiny_policy(), tiny_policy()
    train(policy, TASKS, CallableRewards(share_of_a), tiny_config(steps=2, control={"reward": "frozen"}))
    pairs = zip(policy.model.parameters(), start.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("name", ["random", "shuffled"])
def test_control_learns_less_than_the_reward(name: ControlName) -> None:
    """The share of the letter a: learned from the reward, and not from one that says nothing."""

    def learned(**control: object) -> float:
        config = tiny_config(steps=30, **({"control": control} if control else {}))
        policy = tiny_policy()
        train(policy, TASKS, CallableRewards(share_of_a), config)
        rollouts = policy.sample(PROMPTS, 16, config.sampling, seed=7)
        return sum(share_of_a(PROMPTS[0], text) for text in rollouts.texts) / len(rollouts.texts)

    assert learned() > learned(reward=name) + 0.1
