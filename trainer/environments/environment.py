"""The protocol of environments: tools that a policy may call, and episodes that answer the calls.

An environment is any object with these two; `calculator` is a whole one in 40 lines::

    class Clock:
        tools = (Tool("now", "Return the time."),)

        def reset(self, prompt: Prompt) -> ClockEpisode: ...      # an episode for one completion

    class ClockEpisode:
        report = None                                             # the final text, once the policy has finished

        def step(self, name: str, arguments: Mapping[str, Any]) -> str: ...

`episodes` does what all of them need: it parses calls, checks them, limits turns, time and text, and counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rubricsvc.core.prompt import Prompt


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: ``parameters`` are its required arguments by name, each with its description; all are texts."""

    name: str
    description: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the shape of OpenAI's API, which chat templates read."""
        properties = {name: {"type": "string", "description": text} for name, text in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


class ToolError(Exception):
    """A call that a tool cannot answer. The policy reads the message, and goes on."""


class Episode(Protocol):
    """One completion in an environment. ``report`` is its final text, None until the policy has finished."""

    @property
    def report(self) -> str | None:
        """The final text, None until the policy has finished."""

    def step(self, name: str, arguments: Mapping[str, str]) -> str:
        """Return the result of a call, whose arguments are those that the tool has.

        Raises:
            ToolError: The call cannot be answered.
        """


class Environment(Protocol):
    """What a policy acts in. Episodes run in several threads, each in one at a time."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools, each with a name of its own."""

    def reset(self, prompt: Prompt) -> Episode:
        """Begin an episode."""
