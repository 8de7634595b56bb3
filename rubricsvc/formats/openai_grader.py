"""OpenAI's graders (string_check, text_similarity, score_model, label_model, python, multi), unchanged.

A record is one of these:

- a grader, which becomes a rubric for any prompt; or an object with graders: an eval (``testing_criteria``), a
  fine-tuning job or its ``reinforcement`` method;
- ``{"item": {…}, "grader": {…}}``, which becomes a prompt with its rubric; ``model_sample`` becomes its completion;
- an item without a grader, as in the files of reinforcement fine-tuning: a row with ``messages``. It becomes a prompt.

An item's ``messages`` are the prompt; without messages, the prompt is the item as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import MAX_LISTED, FileErrors, Location
from rubricsvc.formats.fields import build, check_fields
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Record
from rubricsvc.graders.model import GRADERS, Grader, rubric_of

_ITEM = ("item", "grader", "model_sample", "id")


def read(file: InputFile) -> Iterator[Record]:
    """Yield the valid records; what is wrong with the others is added to ``file.errors``."""
    errors = file.errors
    for data, location in file.records():
        if not isinstance(data, dict):
            errors.expected(location, "dict_type", "a grader or an item", data)
        elif "item" in data or "messages" in data or not (graders_data := _graders_in(data)):
            record = _item(data if "item" in data else {"item": data}, location, errors)
            yield from (record,) if record else ()
        else:
            graders = (grader_of(one, location, errors, path) for path, one in graders_data)
            yield from (
                Record(None, rubric_of(one), name=rubric_name(one.label), location=location) for one in graders if one
            )


_GRADER_PATHS: tuple[FieldPath, ...] = (("grader",), ("reinforcement", "grader"), ("method", "reinforcement", "grader"))


def _graders_in(data: dict[str, Any]) -> list[tuple[FieldPath, Any]]:
    """Return the graders in a record, each with its path; none for a row of data."""
    if isinstance(several := data.get("testing_criteria"), list):
        return [(("testing_criteria", number), one) for number, one in enumerate(several)]
    for path in _GRADER_PATHS:
        here: Any = data
        for step in path:
            here = here.get(step) if isinstance(here, dict) else None
        if here is not None:
            return [(path, here)]
    return [((), data)] if "type" in data and data.keys() & {"name", "input", "source", "graders"} else []


def _item(data: dict[str, Any], location: Location, errors: FileErrors) -> Record | None:
    before = errors.count
    check_fields(data, _ITEM, location, errors)
    item = data.get("item", {})
    grader = grader_of(data["grader"], location, errors, ("grader",)) if "grader" in data else None
    prompt = prompt_of(item, location, errors, ("item",))
    sample = data.get("model_sample")
    if sample is not None and not isinstance(sample, str):
        errors.expected(location, "string_type", "text", sample, ("model_sample",))
    if errors.count > before or prompt is None:
        return None
    number = data.get("id", item.get("id"))
    name = rubric_name(f"{grader.label} {prompt.digest[:12]}") if grader else ""  # each prompt has its own rubric
    return Record(
        prompt,
        rubric_of(grader) if grader else None,
        (Completion(text=sample),) if sample is not None else (),
        id=str(number) if isinstance(number, str | int) and number != "" else None,
        name=name,
        location=location,
    )


def prompt_of(item: Any, location: Location, errors: FileErrors, path: FieldPath = ()) -> Prompt | None:
    """Return the prompt of an item, or None after adding its errors."""
    if not isinstance(item, dict):
        errors.expected(location, "dict_type", "a mapping", item, path)
        return None
    messages = item.get("messages") or [{"role": "user", "content": json.dumps(item, ensure_ascii=False)}]
    return build(Prompt, {"messages": messages, "item": item}, location, errors, path)


def grader_of(data: Any, location: Location, errors: FileErrors, path: FieldPath = ()) -> Grader | None:
    """Return the grader in plain data, or None after adding its errors."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in GRADERS:
        errors.expected(location, "grader_type", f"one of {', '.join(GRADERS)}", kind, (*path, "type"))
        return None
    parts = data.get("graders")
    if isinstance(parts, dict) and isinstance(parts.get("type"), str):
        alone = parts.get("name") or parts["type"]  # one grader, as the type in OpenAI's client has it
        data = {**data, "graders": {str(alone): parts}}
    return build(GRADERS[kind], data, location, errors, path)


def parse_prompt(item: Any) -> Prompt:
    """Return the prompt of an item that comes from no file.

    Raises:
        InvalidError: it is not an item; ``path`` names the field.
    """
    prompt = prompt_of(item, Location("item"), errors := FileErrors(), ("item",))
    return prompt or _reject(errors, "an item is a JSON object; its messages are chat messages")


def parse(data: Any) -> Grader:
    """Return the grader in plain data that comes from no file.

    Raises:
        InvalidError: it is not a grader; ``path`` names the field.
    """
    grader = grader_of(data, Location("grader"), errors := FileErrors(), ("grader",))
    return grader or _reject(errors, "docs/graders.md describes the graders")


def _reject(errors: FileErrors, hint: str) -> NoReturn:
    listed = [f"{error.path}: {error.message}" for error in errors.errors[:MAX_LISTED]]
    raise InvalidError("; ".join(listed), hint=hint, path=errors.errors[0].path)
