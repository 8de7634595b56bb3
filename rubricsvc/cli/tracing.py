"""An agent's trace out of a file, for `rubricsvc score`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rubricsvc.errors import InvalidError

if TYPE_CHECKING:
    from rubricsvc.core.prompt import Completion


_SHAPE = 'give it JSON: a list of messages (role, content, tool_calls), {"messages": […]}, or one a line'


def trace_of(text: str, file: str) -> Completion:
    """The messages of a JSON list, of a mapping with ``messages``, or of JSONL with a message a line.

    Raises:
        InvalidError: there are none.
        FormatError: they are no messages.
    """
    from rubricsvc.formats.errors import BadFileError, Faults, Place
    from rubricsvc.formats.native import completion_of

    messages = _messages(text, file)
    if messages is None:
        raise InvalidError(
            f"{file} holds no messages, and a trajectory judge goes through an agent's steps", hint=_SHAPE
        )
    faults = Faults()
    completion = completion_of({"messages": messages}, Place(file), faults)
    if completion is None:
        raise BadFileError(file, faults.kept, faults.count, hint=_SHAPE)
    if not any(message.role == "assistant" for message in completion.messages):
        raise InvalidError(f"{file} holds no message of an agent (role: assistant), so there are no steps", hint=_SHAPE)
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
                raise InvalidError(f"{file}:{error.line + 1}: {error}", hint=_SHAPE) from error
            return None
    if isinstance(data, dict):
        data = data.get("messages", [data] if "role" in data else None)
    return data if isinstance(data, list) and data else None
