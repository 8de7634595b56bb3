"""Tools, the protocol of environments that have them, and calls as a model writes them.

An environment is any object with these two; `Calculator` in `tools` is a whole one::

    class Clock:
        tools = (Tool("now", "Return the time."),)

        def reset(self, prompt: Prompt) -> ClockEpisode: ...      # an episode for one completion

    class ClockEpisode:
        report = None                                             # the final text, once the policy has finished

        def step(self, name: str, arguments: Mapping[str, Any]) -> str: ...

`episodes` does what all of them need: it checks calls, limits turns, time and text, and counts. Calls have the form of
Hermes, Qwen and SmolLM2, ``<tool_call>{"name": "search", "arguments": {"query": "…"}}</tool_call>``. A model whose chat
template has no tools reads them in its system message.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Message, Prompt, ToolCall, tool_results


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

    A method ``leak_guard(prompt)`` returns what no tool must show of the answer: `trainer.environments.episodes`.
    """

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools, each with a name of its own."""

    def reset(self, prompt: Prompt) -> Episode:
        """Begin an episode."""


OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(rf"{OPEN}(.*?){CLOSE}", re.DOTALL)

INSTRUCTIONS = """\
Use these tools, one call in each message, and wait for its result:
{tools}
Call a tool with a line like this:
{example}"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of the policy: its text without the calls, its calls, and what is malformed in it, if anything is."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    error: str | None = None


def call_text(name: str, **arguments: str) -> str:
    """Return a call as a model writes it."""
    return call_line(ToolCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False)))


def call_line(call: ToolCall) -> str:
    """Return a call of a message as a model writes it."""
    return f'{OPEN}{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}{CLOSE}'


def parse(text: str) -> Turn:
    """Return the calls in a text. A malformed one is an error that says what was expected, and no call is made."""
    content, bodies = _CALL.sub("", text).strip(), _CALL.findall(text)
    if OPEN in content or CLOSE in content:
        return Turn(text, error=f"a call begins with {OPEN} and ends with {CLOSE}")
    calls = []
    for number, body in enumerate(bodies):
        try:
            data = strict_json.parse(body)
        except (ValueError, RecursionError) as error:
            return Turn(text, error=f"the call is no JSON: {error}")
        name, arguments = (data.get("name"), data.get("arguments", {})) if isinstance(data, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return Turn(text, error='expected {"name": "…", "arguments": {…}}')
        calls.append(ToolCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False), id=f"call-{number}"))
    return Turn(content, tuple(calls))


def with_tools(prompt: Prompt, tools: Sequence[Tool]) -> Prompt:
    """Return the prompt whose system message describes the tools, for a chat template without them."""
    lines = [f"- {tool.name}({', '.join(tool.parameters)}): {tool.description}" for tool in tools]
    first = tools[0]
    required = first.schema["function"]["parameters"].get("required", ())
    example = call_text(first.name, **dict.fromkeys(required, "…"))
    text = INSTRUCTIONS.format(tools="\n".join(lines), example=example)
    head, *rest = prompt.messages
    if head.role != "system":
        return prompt.model_copy(update={"messages": (Message(role="system", content=text), head, *rest)})
    joined = head.model_copy(update={"content": f"{head.content}\n\n{text}"})
    return prompt.model_copy(update={"messages": (joined, *rest)})


NOTE = Tool(
    "note",
    "Write down what you need of what you have read. Only your notes are kept; all else is forgotten.",
    {"text": "The note."},
)
KEPT = "Noted. Only your notes are kept."


def notes_of(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the notes of a trajectory so far, each as its call and the answer."""
    notes: list[Message] = []
    for call, answer in tool_results(messages):
        if call is not None and took_note((answer,)):
            notes += Message(role="assistant", content="", tool_calls=(call,)), answer
    return tuple(notes)


def took_note(messages: Iterable[Message]) -> bool:
    """Return whether one of these messages answers a note, after which only notes are kept."""
    return any(one.role == "tool" and one.name == NOTE.name and one.content == KEPT for one in messages)
