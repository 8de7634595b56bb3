"""The curriculum of an environment: what a step has depends on the configuration and the step alone."""

from __future__ import annotations

import pytest

from rubricsvc.core.prompt import Prompt
from tests.model.trainer.policies.test_episode_sampling import CALL, Reversing, ending, scripted  # noqa: F401
from tests.model.trainer.tiny import TASKS, tiny_config
from trainer.config import TrainConfig
from trainer.environments.curriculum import in_stage
from trainer.environments.environment import Tool
from trainer.environments.episodes import EpisodeLimits
from trainer.environments.tool_calls import call_text
from trainer.loop import sample_tasks
from trainer.policies.policy import Acting, Policy

LOUDER = call_text("louder", text="live")


class Speaking(Reversing):
    """An environment with a second tool."""

    tools = (*Reversing.tools, Tool("louder", "repeat a text", {"text": "a text"}))

    def leak_guard(self, prompt: Prompt) -> None:
        return None


def config(**environment: object) -> TrainConfig:
    stages = [{"steps": 2, "tools": ["reverse"], "max_turns": 1}, {"steps": 3, "max_tokens": 40}]
    given = {"name": "calculator", "max_turns": 3, "max_tokens": 80, "curriculum": stages, **environment}
    sampling = {"prompts_per_step": 1, "group_size": 2, "max_new_tokens": 3}
    return tiny_config(environment=given, sampling=sampling)


def policy(*turns: list[str]) -> Policy:
    acting = scripted(*turns)
    acting.acting = Acting(Speaking(), EpisodeLimits(max_turns=3), max_tokens=80)
    return acting


def test_in_stage_limits_tools_turns_and_tokens() -> None:
    whole, settings = policy(), config().environment
    seen = []
    for step in (0, 2, 5):
        acting = in_stage(whole, settings, step).acting
        assert acting is not None
        names = [tool.name for tool in acting.environment.tools]
        seen.append((names, acting.limits.max_turns, acting.max_tokens))
    both = ["reverse", "louder"]
    assert seen == [(["reverse"], 1, 80), (both, 3, 40), (both, 3, 80)]
    first = in_stage(whole, settings, 0).acting
    assert first is not None and hasattr(first.environment, "leak_guard")
    assert in_stage(whole, settings, 5) is whole and in_stage(whole, settings, 0).model is whole.model


@pytest.mark.usefixtures("ending")
def test_sample_tasks_shows_the_tools_of_the_stage_only() -> None:
    prompts = []
    for step, calls in ((0, {"refused": 1}), (5, {"calls/louder": 1})):
        turns = [[LOUDER, CALL], ["a", "a"], ["a", "a"]] if step else [[LOUDER, CALL]]
        rollouts = sample_tasks(policy(*turns), TASKS[:1], config(), step)
        assert rollouts.episodes is not None
        louder, reverse = (dict(one.counts) for one in rollouts.episodes)
        assert calls.items() <= louder.items() and reverse["calls/reverse"] == 1
        assert louder["turns"] == (2 if step else 1)
        prompts.append(int(rollouts.prompt_mask_QP.sum()))
    assert prompts[0] < prompts[1]
