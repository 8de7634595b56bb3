"""The protocol of environments: tools that a policy may call, and episodes that answer the calls.

An environment is any object with these two; `calculator` is a whole one in 50 lines::

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
    """A tool: ``parameters`` are its arguments by name, each with its description.

    All are texts and required, unless ``input_schema``, a JSON schema of the arguments, says otherwise.
    """

    name: str
    description: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    input_schema: Mapping[str, Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in the shape of OpenAI's API, which chat templates read."""
        properties = {name: {"type": "string", "description": text} for name, text in self.parameters.items()}
        parameters = self.input_schema or {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def fault(self, arguments: Mapping[str, Any]) -> str | None:
        """Return what is wrong with the arguments of a call; None if nothing is."""
        if self.input_schema is None:
            if set(arguments) == set(self.parameters) and all(isinstance(one, str) for one in arguments.values()):
                return None
            return f"{self.name} takes the texts {', '.join(self.parameters) or 'nothing'}"
        from jsonschema import validators
        from jsonschema.exceptions import best_match
        from referencing import Registry

        validator = validators.validator_for(self.input_schema)(self.input_schema, registry=Registry())
        error = best_match(validator.iter_errors(arguments))
        return None if error is None else f"{self.name}{error.json_path.removeprefix('$')}: {error.message}"


class ToolError(Exception):
    """A call that a tool cannot answer. The policy reads the message, and goes on."""


class Episode(Protocol):
    """One completion in an environment. ``report`` is its final text, None until the policy has finished."""

    @property
    def report(self) -> str | None:
        """The final text, None until the policy has finished."""

    def step(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of a call, whose arguments are those that the tool has."""


class Environment(Protocol):
    """What a policy acts in. Episodes run in several threads, each in one at a time.

    A method ``leak_guard(prompt)`` returns what no tool must show of the answer: `trainer.environments.leaks`.
    """

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools, each with a name of its own."""

    def reset(self, prompt: Prompt) -> Episode:
        """Begin an episode."""
