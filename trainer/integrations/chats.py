"""Prompts and completions of a trainer's batch, in the shapes of OpenAI's and TRL's messages, as values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rubricsvc.core.base import storable
from rubricsvc.core.prompt import Completion, Message, Prompt
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError

Chat = str | Sequence[Mapping[str, Any]]
"""A text, or messages in OpenAI's shape."""


def prompt_of(given: Chat, place: int, ignored: set[str] | None = None) -> Prompt:
    """Return a prompt of a trainer's batch. Fields of messages that are not read are added to ``ignored``.

    Raises:
        InvalidError: a message is invalid; ``path`` begins with ``prompts`` and the place.
    """
    if isinstance(given, str):
        return Prompt.of(storable(given))
    path = f"prompts.{place}"
    if not (messages := _messages(given, path, ignored)):
        raise InvalidError(f"{path}: no messages", hint="give at least the question, as a message of a user", path=path)
    return Prompt(messages=messages)


def completion_of(
    given: Chat, place: int, ignored: set[str] | None = None, *, policy: str, step: int | None
) -> Completion:
    """Return a completion of a trainer's batch. Messages with tool calls or reasoning are kept."""
    if isinstance(given, str):
        return Completion(text=storable(given), policy=policy, step=step)
    path = f"completions.{place}"
    messages = _messages(given, path, ignored)
    if all(message.role != "assistant" for message in messages):
        hint = "the text of the policy has the role assistant"
        raise InvalidError(f"{path}: no message of the assistant", hint=hint, path=path)
    if len(messages) == 1 and not (messages[0].tool_calls or messages[0].reasoning):
        return Completion(text=messages[0].content, policy=policy, step=step)
    return Completion(messages=messages, policy=policy, step=step)


def _messages(given: Sequence[Mapping[str, Any]], path: str, ignored: set[str] | None) -> tuple[Message, ...]:
    """Return messages as values. A dataset fills fields that other rows have with None."""
    if not isinstance(given, Iterable):
        message = f"{path}: expected a text or messages, got {type(given).__name__}"
        raise InvalidError(message, hint="give messages as a list", path=path)
    try:
        return tuple(Message.model_validate(_storable(one), context=ignored) for one in given)
    except ValidationError as error:
        at, message = first_error(error)
        hint = "use messages of text, with role and content"
        raise InvalidError(f"{path}.{at}: {message}", hint=hint, path=f"{path}.{at}") from error


def _storable(value: Any) -> Any:
    """Return plain data without fields that are None, its texts storable."""
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {key: _storable(one) for key, one in value.items() if one is not None}
        case list() | tuple():
            return [_storable(one) for one in value]
    return value
