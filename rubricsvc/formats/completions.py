"""Completions without rubrics: JSONL, one a line, with the prompt that each answers or the id of that prompt.

A line has ``prompt`` (text or messages) or ``prompt_id`` (text: a prompt's id in the file it was imported from, or else
in the database; a number: in the database), the answer as ``completion`` or ``text`` or a whole trajectory as
``messages``, and optionally ``policy``, ``step``, ``sampling`` and ``id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.formats.errors import FileErrors, Location
from rubricsvc.formats.fields import build, check_fields
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import PROMPT, prompt_of

COMPLETION = ("text", "messages", "policy", "step", "sampling", "id")
FIELDS = (*PROMPT, "prompt_id", "completion", *COMPLETION)


@dataclass(frozen=True, slots=True)
class CompletionLine:
    """A completion with its ``prompt`` or its ``prompt_id``."""

    completion: Completion
    prompt: Prompt | None
    prompt_id: int | str | None
    location: Location


def matches(first: Any) -> bool:
    """Return whether a file with this first record holds completions, and not records of another format."""
    if not isinstance(first, dict) or first.keys() & {"criteria", "rubrics", "rubric", "criterions"}:
        return False
    return bool(first.keys() & {"prompt", "prompt_id"} and first.keys() & {"completion", "text", "messages"})


def read(file: InputFile) -> Iterator[CompletionLine]:
    """Yield the valid completions; what is wrong with the others is added to ``file.errors``."""
    return file.parse(_parse)


def _parse(data: Any, location: Location, errors: FileErrors) -> CompletionLine | None:
    before = errors.count
    if not isinstance(data, dict):
        errors.expected(location, "dict_type", "a mapping with prompt and completion", data)
        return None
    check_fields(data, FIELDS, location, errors)
    if ("prompt" in data) == ("prompt_id" in data):
        both = "prompt" in data
        errors.add(location, "missing", f"expected prompt or prompt_id, found {'both' if both else 'neither'}")
    texts = [name for name in ("completion", "text") if name in data]
    if len(texts) > 1 or not (texts or "messages" in data):
        message = f"expected completion (or text, or messages), found {' and '.join(texts) or 'none'}"
        errors.add(location, "missing", message)
    prompt = prompt_of(data, location, errors) if "prompt" in data else None
    fields = {name: data[name] for name in COMPLETION if name in data}
    if "completion" in data:
        fields["text"] = data["completion"]
    names = {"text": "completion"} if "completion" in data else {}
    completion = build(Completion, fields, location, errors, names=names)
    prompt_id = data.get("prompt_id")
    if prompt_id is not None and (isinstance(prompt_id, bool) or not isinstance(prompt_id, int | str)):
        errors.expected(location, "id_type", "an id", prompt_id, ("prompt_id",))
    if completion is None or errors.count > before:
        return None
    return CompletionLine(completion, prompt, prompt_id, location)
