"""An agent's trajectory in a JSON or JSONL file of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from rubricsvc.core.prompt import Completion


_EXPECTED = 'expected JSON: a list of messages (role, content, tool_calls), {"messages": […]}, or one message a line'


def parse_trajectory(text: str, file: str) -> Completion:
    """Parse a JSON list of messages, a mapping with ``messages``, or JSONL with a message a line.

    Raises:
        InvalidError: there are no messages, or none of role ``assistant``.
        FormatError: a message is not valid.
    """
    from rubricsvc.formats.errors import BadFileError, Faults, Place
    from rubricsvc.formats.native import completion_of

    messages = _messages(text, file)
    if messages is None:
        raise InvalidError(f"{file} holds no messages; a trajectory judge needs an agent's steps", hint=_EXPECTED)
    faults = Faults()
    completion = completion_of({"messages": messages}, Place(file), faults)
    if completion is None:
        raise BadFileError(file, faults.kept, faults.count, hint=_EXPECTED)
    if not any(message.role == "assistant" for message in completion.messages):
        raise InvalidError(f"{file} has no message with role: assistant, so there are no steps", hint=_EXPECTED)
    return completion


def _messages(text: str, file: str) -> list[Any] | None:
    from rubricsvc.formats.strictjson import JsonError, parse

    try:
        data = parse(text)
    except JsonError as error:
        try:
            data = [parse(line) for line in text.splitlines() if line.strip()]
        except JsonError:
            if text.lstrip().startswith(("[", "{")):
                raise InvalidError(f"{file}:{error.line + 1}: {error}", hint=_EXPECTED) from error
            return None
    if isinstance(data, dict):
        data = data.get("messages", [data] if "role" in data else None)
    return data if isinstance(data, list) and data else None
