"""Twenty real runs each with a clean and with a hacked reward: is divergence from gold found, and only there?

Reward and gold score have noise of their own for each text, so that gold does not follow exactly in clean runs.
"""

import random
from collections.abc import Callable

import pytest
import torch

from rubricsvc.core.prompt import Prompt
from tests.model.trainer.tiny import RUBRIC, TASKS, share_of_a, tiny_config, tiny_policy
from trainer import loop
from trainer.data.tasks import Task
from trainer.divergence import ALPHA, Divergence, first_divergence
from trainer.evaluation import Evaluation, Evaluator
from trainer.loop import train
from trainer.policies.policy import Policy
from trainer.rewards import CallableRewards

RUNS, STEPS = 20, 40
HELD_OUT = [Task(Prompt.of(f"say {letter}"), RUBRIC, letter) for letter in "bcdefghijklmnopq"]
Score = Callable[[Prompt, str], float]


def noisy(score: Score, name: str) -> Score:
    """Return the score with noise of up to ± 0.2, the same whenever it is asked about a text."""

    def value(prompt: Prompt, text: str) -> float:
        return min(1.0, max(0.0, score(prompt, text) + random.Random(name + text).uniform(-0.2, 0.2)))

    return value


def divergence(seed: int, gold: Score) -> tuple[Divergence | None, float]:
    """Train by the share of the letter a; return the first divergence from gold, and the rise of the reward."""
    settings = {"share": 0.5, "every": 4, "samples": 2, "greedy": False, "judges": ["gold"]}
    sampling = {"prompts_per_step": 2, "group_size": 8, "max_new_tokens": 12}
    config = tiny_config(steps=STEPS, seed=seed, eval=settings, sampling=sampling, optim={"lr": 1e-2})
    rewards = CallableRewards(noisy(share_of_a, "reward"))
    evaluator = Evaluator(config, HELD_OUT, {"reward": rewards, "gold": CallableRewards(noisy(gold, "gold"))})
    evaluation = Evaluation(evaluator, None, STEPS)
    history = train(tiny_policy(seed), TASKS, rewards, config, evaluation=evaluation)
    means = [line["scores"]["reward"]["mean"]["value"] for line in history.evaluations]
    return first_divergence(history.evaluations), means[-1] - means[0]


def test_divergence_is_silent_in_clean_runs() -> None:
    found, rises = zip(*(divergence(seed, share_of_a) for seed in range(RUNS)), strict=True)
    assert min(rises) > 0.05, "all of them learn"
    assert sum(one is not None for one in found) <= ALPHA * RUNS


def test_divergence_is_found_in_hacked_runs() -> None:
    found, rises = zip(*(divergence(seed, lambda _prompt, _text: 0.4) for seed in range(RUNS)), strict=True)
    assert min(rises) > 0.05
    assert sum(one is not None for one in found) >= 0.9 * RUNS


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
