"""The curriculum of an environment: a run begins with few tools and short episodes.

What a step has depends on the configuration and the step alone, so that a resumed run has the same. Evaluations have
the whole environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.trajectory import is_error, json_of, tool_results
from rubricsvc.errors import InvalidError
from trainer.environments.config import CurriculumStage, EnvironmentConfig
from trainer.environments.environment import Environment, Episode, Tool
from trainer.policies.policy import Acting, Policy
from trainer.policies.rollouts import EpisodeRecord, Rollouts


class SomeTools:
    """An environment of which only some tools may be called."""

    def __init__(self, environment: Environment, names: Sequence[str]) -> None:
        """Keep these tools of an environment.

        Raises:
            InvalidError: It has no tool of such a name.
        """
        known = [tool.name for tool in environment.tools]
        if unknown := [name for name in names if name not in known]:
            raise InvalidError(
                f"environment.curriculum: the environment has no tool {unknown[0]!r}",
                hint=f"its tools are {', '.join(known)}",
            )
        self.tools: Sequence[Tool] = tuple(tool for tool in environment.tools if tool.name in names)
        self._environment = environment

    def reset(self, prompt: Prompt) -> Episode:
        """Begin an episode."""
        return self._environment.reset(prompt)

    def __getattr__(self, name: str) -> Any:
        """Return what environments may have beside the protocol, such as a leak guard."""
        return getattr(self._environment, name)


def stage_of(config: EnvironmentConfig | None, step: int) -> CurriculumStage | None:
    """Return the stage of a step (from 0); None after the last."""
    for stage in config.curriculum if config is not None else ():
        if step < stage.steps:
            return stage
        step -= stage.steps
    return None


def limited(acting: Acting, stage: CurriculumStage) -> Acting:
    """Return an environment with the tools and the limits of a stage.

    Raises:
        InvalidError: It lacks a tool of the stage.
    """
    environment = acting.environment if stage.tools is None else SomeTools(acting.environment, stage.tools)
    limits = replace(acting.limits, max_turns=stage.max_turns or acting.limits.max_turns)
    return replace(acting, environment=environment, limits=limits, max_tokens=stage.max_tokens or acting.max_tokens)


def in_stage(policy: Policy, config: EnvironmentConfig | None, step: int) -> Policy:
    """Return the policy as it acts in a step (from 0); its weights are the same."""
    stage = stage_of(config, step)
    if stage is None or policy.acting is None:
        return policy
    staged = copy(policy)
    staged.acting = limited(policy.acting, stage)
    return staged


TOOLS = 2
"""Different tools for the whole bonus, such as a search and an opened document. More calls earn no more."""


def tool_bonus(rollouts: Rollouts, config: EnvironmentConfig | None, step: int) -> Tensor | None:
    """Return the bonus of each completion [B] in a step (from 0); None without one, or once it has faded.

    It is ``tool_bonus`` · (1 - step/steps) · min(1, tools/2): of tools that answered a call without an error.
    """
    if config is None or not rollouts.episodes or step >= config.tool_bonus_steps or not config.tool_bonus:
        return None
    size = config.tool_bonus * (1 - step / config.tool_bonus_steps)
    return torch.tensor([size * min(1.0, _tools(one) / TOOLS) for one in rollouts.episodes], dtype=torch.float64)


def centred(bonus_GM: Tensor, rewards_GM: Tensor) -> Tensor:
    """Return the bonus less its mean over the scored completions of the group [G, M]; 0 for those without a reward."""
    scored_GM = torch.where(rewards_GM.isnan(), torch.nan, bonus_GM)
    return (scored_GM - scored_GM.nanmean(-1, keepdim=True)).nan_to_num(0.0)


def _tools(episode: EpisodeRecord) -> int:
    """Return how many different tools answered a call without an error."""
    results = tool_results(episode.messages)
    return len({call.name for call, result in results if call is not None and not is_error(json_of(result.content))})
