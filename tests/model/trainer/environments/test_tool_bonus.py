"""The bonus for tools: it fades, it is part of no reward, and it does not outweigh the rubric."""

from __future__ import annotations

import math

import pytest
import torch

from tests.model.trainer.policies.test_episode_sampling import CALL, ending, sampled, scripted  # noqa: F401
from tests.model.trainer.tiny import PROMPTS, tiny_config
from trainer.algorithms import grpo
from trainer.config import TrainConfig
from trainer.environments.tool_calls import call_text
from trainer.optim import MasterAdamW
from trainer.policies.rollouts import Rollouts
from trainer.policy_update import TrainState, advantages, update

REFUSED = call_text("reverse", wrong="live")
TEXTS = ([CALL, REFUSED, "a", "a"], ["b", "b"])
"""Of four completions one has called its tool, and one in vain."""


def config(**fields: object) -> TrainConfig:
    environment = {"name": "calculator", "tool_bonus": 0.2, "tool_bonus_steps": 10, **fields}
    return tiny_config(environment=environment, algorithm="grpo")


def state_and_rollouts(given: TrainConfig) -> tuple[TrainState, Rollouts]:
    policy = scripted(*TEXTS)
    rollouts = sampled(policy, PROMPTS[:1], group=4)
    return TrainState(policy, None, MasterAdamW(policy.model, given.optim), given, 0.0), rollouts


def rewards(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.usefixtures("ending")
def test_tool_bonus_fades_and_counts_only_calls_that_were_answered() -> None:
    state, rollouts = state_and_rollouts(config())
    sizes = []
    for step in (0, 5, 10):
        found, metrics = advantages(state, rollouts, equal := rewards(0.0, 0.0, 0.0, 0.0), step)
        assert (found[0, 1:] == found[0, 1]).all()
        sizes.append(float(found[0, 0] - found[0, 1]))
        assert metrics == ({"tool_bonus": pytest.approx(sizes[-1] / 4)} if step < 10 else {})
    assert sizes == [pytest.approx(0.1), pytest.approx(0.05), 0.0]  # one of two tools
    assert not advantages(state_and_rollouts(config(tool_bonus=0.0))[0], rollouts, equal, 0)[0].any()


@pytest.mark.usefixtures("ending")
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_tool_bonus_does_not_outweigh_the_rubric(scale: float) -> None:
    state, rollouts = state_and_rollouts(config(tool_bonus=0.5))
    found, _ = advantages(state, rollouts, rewards(0.0, scale, 0.0, scale), 0)
    assert found[0, 0] < 0 < found[0, 1]
    assert found[0, 0] > found[0, 2]
    plain = grpo.advantages(rewards(0.0, scale, 0.0, scale))
    assert (found - plain).abs().max() <= 0.25


@pytest.mark.usefixtures("ending")
def test_update_records_the_bonus_and_leaves_completions_without_reward_out() -> None:
    state, rollouts = state_and_rollouts(config())
    updated = update(state, rollouts, rewards(math.nan, 0.0, 0.5, 1.0), 0)
    assert updated.metrics["tool_bonus"] == pytest.approx(0.025)
    assert updated.advantages_B[0] == 0.0
    assert updated.advantages_B.tolist() == pytest.approx(
        grpo.advantages(rewards(math.nan, 0.0, 0.5, 1.0)).flatten().tolist()
    )
