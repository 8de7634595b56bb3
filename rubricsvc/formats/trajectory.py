"""An agent's trajectory in a JSON or JSONL file of messages."""

from __future__ import annotations

from typing import Any

from rubricsvc.core.prompt import Completion
from rubricsvc.core.strict_json import JsonError, parse
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import FileErrors, InvalidFileError, Location
from rubricsvc.formats.fields import build

_EXPECTED = 'expected JSON: a list of messages (role, content, tool_calls), {"messages": […]}, or one message a line'


def parse_trajectory(text: str, file: str) -> Completion:
    """Parse a JSON list of messages, a mapping with ``messages``, or JSONL with a message a line.

    Raises:
        InvalidError: there are no messages, or none of role ``assistant``.
        FormatError: a message is not valid.
    """
    messages = _messages(text, file)
    if messages is None:
        raise InvalidError(f"{file} holds no messages; a trajectory judge needs an agent's steps", hint=_EXPECTED)
    errors = FileErrors()
    completion = build(Completion, {"messages": messages}, Location(file), errors)
    if completion is None:
        raise InvalidFileError(errors.errors, errors.count, hint=_EXPECTED)
    if not any(message.role == "assistant" for message in completion.messages):
        raise InvalidError(f"{file} has no message with role: assistant, so there are no steps", hint=_EXPECTED)
    return completion


def _messages(text: str, file: str) -> list[Any] | None:
    try:
        data = parse(text)
    except JsonError as error:
        try:
            data = [parse(line) for line in text.splitlines() if line.strip()]
        except JsonError:
            if text.lstrip().startswith(("[", "{")):
                raise InvalidError(f"{file}:{error.line}: {error}", hint=_EXPECTED) from error
            return None
    if isinstance(data, dict):
        data = data.get("messages", [data] if "role" in data else None)
    return data if isinstance(data, list) and data else None
