"""Completions by themselves: native JSONL, one a line, naming or holding the prompt that it answers.

A line has ``prompt`` (text or messages) or ``prompt_id`` (a text: a prompt's id in the file it was imported from, or
else in the database; a number: in the database only), the answer as ``completion`` or ``text`` or a whole trajectory as
``messages``, and optionally ``policy``, ``step``, ``sampling`` and ``id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.validation_messages import describe
from rubricsvc.formats.documents import documents, parsed
from rubricsvc.formats.errors import Faults, Place, Renamed
from rubricsvc.formats.fields import unknown_fields
from rubricsvc.formats.native import PROMPT, completion_of, prompt_of
from rubricsvc.formats.source import Source

ANSWER = ("text", "messages", "policy", "step", "sampling", "id")
FIELDS = (*PROMPT, "prompt_id", "completion", *ANSWER)


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion, and its prompt: the prompt itself, or its id."""

    completion: Completion
    prompt: Prompt | None
    prompt_id: int | str | None
    place: Place


def fits(source: Source) -> bool:
    """Whether the first record is a completion by itself, and not a record of another format.

    Raises:
        FormatError: the file cannot be read at all.
    """
    first, _ = next(documents(source, Faults()), (None, None))
    if not isinstance(first, dict):
        return False
    asked, answered = first.keys() & {"prompt", "prompt_id"}, first.keys() & {"completion", "text", "messages"}
    return bool(asked and answered) and not first.keys() & {"criteria", "rubrics", "rubric", "criterions"}


def read(source: Source, faults: Faults) -> Iterator[Answer]:
    """The file's completions; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    return parsed(source, faults, parse)


def parse(data: Any, place: Place, faults: Faults) -> Answer | None:
    """One completion out of plain data; or None, with its faults added."""
    before = faults.count
    if not isinstance(data, dict):
        faults.add(place, f"expected a mapping with prompt and completion, found {describe(data)}")
        return None
    unknown_fields(data, FIELDS, place, faults, ())
    if ("prompt" in data) == ("prompt_id" in data):
        both = "prompt" in data
        faults.add(place, f"expected prompt or prompt_id, found {'both' if both else 'neither'}")
    texts = [name for name in ("completion", "text") if name in data]
    if len(texts) > 1 or not (texts or "messages" in data):
        faults.add(place, f"expected completion (or text, or messages), found {' and '.join(texts) or 'none'}")
    prompt = prompt_of(data, place, faults) if "prompt" in data else None
    fields = {name: data[name] for name in ANSWER if name in data}
    if "completion" in data:
        fields["text"] = data["completion"]
    named = Renamed(faults, {"text": "completion"}) if "completion" in data else faults
    completion = completion_of(fields, place, named)
    prompt_id = data.get("prompt_id")
    if prompt_id is not None and (isinstance(prompt_id, bool) or not isinstance(prompt_id, int | str)):
        faults.add(place, f"expected an id, found {describe(prompt_id)}", ("prompt_id",))
    if completion is None or faults.count > before:
        return None
    return Answer(completion, prompt, prompt_id, place)
