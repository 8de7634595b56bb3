"""An environment whose tools find nothing: a control that shows whether a policy needs what they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rubricsvc.core.prompt import Prompt
from trainer.environments.environment import Environment, Episode, Tool, ToolError


class EmptyResults:
    """An environment with the same tools, whose results are empty until one ends the episode. Calls are made."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of the environment."""
        return self._environment.tools

    def reset(self, prompt: Prompt) -> Episode:
        """Begin an episode."""
        return _EmptyEpisode(self._environment.reset(prompt))


class _EmptyEpisode:
    def __init__(self, episode: Episode) -> None:
        self._episode = episode

    @property
    def report(self) -> str | None:
        return self._episode.report

    def step(self, name: str, arguments: Mapping[str, Any]) -> str:
        with suppress(ToolError):  # "no such document" would be a result, too
            self._episode.step(name, arguments)
        return ""
