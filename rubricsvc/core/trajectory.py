"""The steps of an agent's trajectory, and the results of its calls.

A step is one message of the assistant with the messages before the next one: results of tools, messages of a user.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rubricsvc.core.prompt import Completion, Message, ToolCall

Step = tuple[Message, ...]


def steps_of(completion: Completion) -> list[Step]:
    """Return the steps in order; a completion without messages is one step.

    The messages before the first one of the assistant belong to the first step.
    """
    if not completion.messages:
        return [(Message(role="assistant", content=completion.text),)]
    starts = [n for n, message in enumerate(completion.messages) if message.role == "assistant"]
    edges = [0, *starts[1:], len(completion.messages)]
    return [completion.messages[start:end] for start, end in pairwise(edges)]


def tool_results(messages: Sequence[Message]) -> Iterator[tuple[ToolCall | None, Message]]:
    """Yield the results of tools with their calls, by the id of the call, else in the order of the calls."""
    pending: list[ToolCall] = []
    for message in messages:
        if message.role == "assistant":
            pending = list(message.tool_calls or ())
        elif message.role == "tool":
            named = (call for call in pending if call.id == message.tool_call_id)
            call = next(named if message.tool_call_id else iter(pending), None)
            if call:
                pending.remove(call)
            yield call, message


def json_of(text: str) -> object:
    """Return a text that is JSON as data, None otherwise."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_error(result: object) -> bool:
    """Return whether the result of a tool, as data, is a JSON object with an ``error``."""
    return isinstance(result, dict) and bool(result.get("error"))
