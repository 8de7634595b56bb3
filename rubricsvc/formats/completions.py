"""Completions without rubrics: JSONL or CSV, one a line, with the prompt that each answers or the id of that prompt.

A line has ``prompt`` (text or messages) or ``prompt_id`` (text: a prompt's id in the file it was imported from, or else
in the database; a number: in the database), the answer as ``completion`` or ``text`` or a whole trajectory as
``messages``, and optionally ``policy``, ``step``, ``sampling`` and ``id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from rubricsvc.core.base import Value
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import InvalidFileError, Location, file_error
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import PROMPT, prompt_fields
from rubricsvc.formats.record import Entry
from rubricsvc.formats.registry import FORMATS

FIELDS = (*PROMPT, "prompt_id", "completion", *Completion.model_fields)


class CompletionLine(Value):
    """A completion with its ``prompt`` or its ``prompt_id``."""

    completion: Completion
    prompt: Prompt | None = None
    prompt_id: int | str | None = None


def matches(first: Any) -> bool:
    """Return whether a file with this first record holds completions, and not records of another format."""
    if not isinstance(first, dict) or first.keys() & {"criteria", "rubrics", "rubric", "criterions"}:
        return False
    if FORMATS["truthfulqa"].identifies(first):
        return False
    return bool(first.keys() & {"prompt", "prompt_id"} and first.keys() & {"completion", "text", "messages"})


def read_all(file: InputFile) -> list[CompletionLine]:
    """Return the completions of a file, which may name no prompt.

    Raises:
        InvalidFileError: the file is invalid, or has no completion.
    """
    lines = [line for line, _ in file.parse(partial(read, needs_prompt=False))]
    file.errors.raise_if_any()
    if not lines:
        raise file_error(file.location, "no_records", "has no completions")
    return lines


def read(entry: Entry, *, needs_prompt: bool = True) -> Iterator[tuple[CompletionLine, Location]]:
    """Yield the completion; what is wrong with it is added to the entry."""
    data = entry.mapping(FIELDS)
    both = "prompt" in data and "prompt_id" in data
    if both or (needs_prompt and not data.keys() & {"prompt", "prompt_id"}):
        entry.add("missing", f"expected prompt or prompt_id, found {'both' if both else 'neither'}")
    texts = [name for name in ("completion", "text") if name in data]
    if len(texts) > 1 or not (texts or "messages" in data):
        message = f"expected completion (or text, or messages), found {' and '.join(texts) or 'none'}"
        entry.add("missing", message)
    completion = {name: data[name] for name in Completion.model_fields if name in data}
    if isinstance(step := data.get("step"), str) and step.isdecimal():
        completion["step"] = int(step)  # of a CSV, whose cells are texts
    if "completion" in data:
        completion["text"] = data["completion"]
    fields = {"completion": completion, "prompt_id": data.get("prompt_id")}
    if "prompt" in data:
        fields["prompt"] = prompt_fields(entry, data)
    nested: dict[str, dict[str, str]] = {
        "prompt": {"messages": "prompt"},
        "completion": {"text": texts[0] if texts else "text"},
    }
    yield entry.build(CompletionLine, fields, nested=nested), entry.location


_TRAJECTORY = 'expected JSON: a list of messages (role, content, tool_calls), {"messages": […]}, or one message a line'


def read_trajectory(file: InputFile) -> Completion:
    """Return the trajectory in a file: a list of messages, a mapping with ``messages``, or a message a line.

    Raises:
        InvalidError: there is no message of role ``assistant``.
        FormatError: a message is not valid.
    """
    data = list(file.parse(lambda entry: [entry.data]))
    file.errors.raise_if_any()
    messages = data[0]["messages"] if len(data) == 1 and isinstance(data[0], dict) and "messages" in data[0] else data
    try:
        completion = Entry(data, file.location).build(Completion, {"messages": messages})
    except InvalidFileError as error:
        raise InvalidFileError(list(error.errors), hint=_TRAJECTORY) from None
    if not any(message.role == "assistant" for message in completion.messages):
        raise InvalidError(f"{file.name} has no message with role: assistant, so there are no steps", hint=_TRAJECTORY)
    return completion
