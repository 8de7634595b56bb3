"""What the modules of other projects' formats share."""

from __future__ import annotations

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Level, Ordinal, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats.native import numbered_keys
from rubricsvc.formats.record import Record, Row


def rubric_in(record: Record, format: str, *, pitfalls: bool = True) -> Rubric:
    """Return the rubric of a record that is written in another format.

    Raises:
        InvalidError: it has none, or, without ``pitfalls``, has a negative weight.
    """
    if record.rubric is None:
        raise InvalidError(f"{format} needs a rubric, and the record has none", hint="choose --format native")
    if not pitfalls:
        for number, criterion in enumerate(record.rubric.criteria):
            if criterion.weight < 0:
                message = f"{format} has no negative weights; criterion {criterion.key!r} has {criterion.weight:g}"
                hint = "reword it so that meeting it is good, with a positive weight, or choose another --format"
                raise InvalidError(message, hint=hint, path=f"criteria[{number}].weight")
    return record.rubric


def prompt_in(record: Record, format: str) -> Prompt:
    """Return the prompt of a record that is written in another format, or raise an InvalidError."""
    if record.prompt is None:
        message = f"{format} needs a prompt, and rubric {record.name!r} is for any prompt"
        raise InvalidError(message, hint="choose a format without prompts, such as autorubric or native", path="prompt")
    return record.prompt


def messages_of(prompt: Prompt) -> list[Row]:
    """Return the chat messages of a prompt as plain data."""
    return [message.openai for message in prompt.messages]


def keys_of(names: list[str | None]) -> list[str]:
    """Return keys of criteria: their names where they can be keys, else c1, c2 and so on by place."""
    cut = [(name or "").strip()[:MAX_NAME_LENGTH] or f"c{number}" for number, name in enumerate(names, start=1)]
    return numbered_keys(cut)


def levels(*values: float) -> Ordinal:
    """Return a scale whose levels are named after their values."""
    return Ordinal(levels=tuple(Level(label=f"{value:g}", value=value) for value in values))


def plain_weight(weight: float) -> float:
    """Return a weight as an integer where it is one, so that files look as people write them."""
    return int(weight) if weight.is_integer() else weight
