"""The curriculum of an environment: a run begins with few tools and short episodes.

What a step has depends on the configuration and the step alone, so that a resumed run has the same. Evaluations have
the whole environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rubricsvc.core.prompt import Prompt
from rubricsvc.errors import InvalidError
from trainer.environments.config import CurriculumStage, EnvironmentConfig
from trainer.environments.environment import Environment, Episode, Tool
from trainer.policies.episode_sampling import Acting
from trainer.policies.policy import Policy


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
