"""OpenAI's graders (string_check, text_similarity, score_model, label_model, python, multi), unchanged.

A record is one of these:

- a grader, which becomes a rubric for any prompt; or an object with graders: an eval (``testing_criteria``), a
  fine-tuning job or its ``reinforcement`` method;
- ``{"item": {…}, "grader": {…}}``, which becomes a prompt with its rubric; ``model_sample`` becomes its completion;
- an item without a grader, as in the files of reinforcement fine-tuning: a row with ``messages``. It becomes a prompt.

An item's ``messages`` are the prompt; without messages, the prompt is the item as JSON.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from pydantic import JsonValue

from rubricsvc.core.base import Value
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import InvalidError
from rubricsvc.formats.record import Entry, InvalidFileError, Location, Record, rubric_name
from rubricsvc.graders.model import Grader, doubts, rubric_of

T = TypeVar("T")


def read(entry: Entry) -> Iterator[Record]:
    """Yield the records of graders, or the one of an item."""
    data = entry.data
    if not isinstance(data, dict):
        entry.expected("dict_type", "a grader or an item", data)
    elif "item" in data or "messages" in data or not (graders := _graders_in(data)):
        row = entry.build(_Item, data if "item" in data else {"item": data})
        messages = row.item.get("messages") or [{"role": "user", "content": json.dumps(row.item, ensure_ascii=False)}]
        prompt = entry.build(Prompt, {"messages": messages, "item": row.item}, ("item",))
        grader = _grader(entry, row.grader, ("grader",), row.item) if "item" in data and "grader" in data else None
        id_ = row.item.get("id") if row.id is None else row.id
        yield Record(
            prompt,
            rubric_of(grader) if grader else None,
            (Completion(text=row.model_sample),) if row.model_sample is not None else (),
            id=str(id_) if isinstance(id_, str | int) and id_ != "" else None,
            name=rubric_name(f"{grader.label} {prompt.digest[:12]}") if grader else "",  # each prompt has its own
            location=entry.location,
        )
    else:
        for path, one in graders:
            grader = _grader(entry, one, path)
            yield Record(None, rubric_of(grader), name=rubric_name(grader.label), location=entry.location)


def _graders_in(data: dict[str, Any]) -> list[tuple[FieldPath, Any]]:
    """Return the graders in a record, each with its path; none for a row of data."""
    match data:
        case {"testing_criteria": list(several)}:
            return [(("testing_criteria", number), one) for number, one in enumerate(several)]
        case {"grader": one}:
            return [(("grader",), one)]
        case {"reinforcement": {"grader": one}}:
            return [(("reinforcement", "grader"), one)]
        case {"method": {"reinforcement": {"grader": one}}}:
            return [(("method", "reinforcement", "grader"), one)]
        case {"type": _} if data.keys() & {"name", "input", "source", "graders"}:
            return [((), data)]
    return []


class _Item(Value):
    item: dict[str, JsonValue]
    grader: JsonValue = None
    model_sample: str | None = None
    id: int | str | None = None


class _Holder(Value):
    grader: Grader


def _grader(entry: Entry, data: Any, path: FieldPath, item: dict[str, JsonValue] | None = None) -> Grader:
    parts = data.get("graders") if isinstance(data, dict) else None
    if isinstance(parts, dict) and isinstance(parts.get("type"), str):
        alone = parts.get("name") or parts["type"]  # one grader, as the type in OpenAI's client has it
        data = {**data, "graders": {str(alone): parts}}
    grader = entry.build(_Holder, {"grader": data}, path, nested={"grader": {}}).grader
    for doubt in doubts(grader, item):
        entry.note("template", doubt)
    return grader


def parse_prompt(item: Any) -> Prompt:
    """Return the prompt of an item that comes from no file, as `parse` returns a grader."""
    hint = "an item is a JSON object; its messages are chat messages"
    return _parse({"item": item}, lambda entry: cast(Prompt, next(read(entry)).prompt), hint)


def parse(data: Any) -> Grader:
    """Return the grader in plain data that comes from no file."""
    return _parse(data, lambda entry: _grader(entry, data, ("grader",)), "docs/graders.md describes the graders")


def _parse(data: Any, reader: Callable[[Entry], T], hint: str) -> T:
    try:
        return reader(Entry(data, Location("")))
    except InvalidFileError as error:
        message = "; ".join(f"{one.path}: {one.message}" for one in error.errors)
        raise InvalidError(message, hint=hint, path=error.errors[0].path) from None
