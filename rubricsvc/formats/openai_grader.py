"""OpenAI's graders (string_check, text_similarity, score_model, label_model, python, multi), unchanged.

A record is one of these:

- a grader, which becomes a rubric for any prompt; or what holds graders: an eval (``testing_criteria``), a fine-tuning
  job or its ``reinforcement`` method;
- ``{"item": {…}, "grader": {…}}``, which becomes a prompt with its rubric; ``model_sample`` beside them its completion;
- an item alone, as in the files of reinforcement fine-tuning: a row with ``messages``. It becomes a prompt.

An item's ``messages`` are what the policy is asked; where it has none, it is asked the item itself, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.validation_messages import describe
from rubricsvc.errors import InvalidError
from rubricsvc.formats.documents import documents
from rubricsvc.formats.errors import Faults, Place, Steps
from rubricsvc.formats.fields import build, unknown_fields
from rubricsvc.formats.native import usable_name
from rubricsvc.formats.record import Record
from rubricsvc.formats.source import Source
from rubricsvc.graders.model import GRADERS, Grader, rubric_of

_FIELDS = ("item", "grader", "model_sample", "id")


def read(source: Source, faults: Faults) -> Iterator[Record]:
    """One record for each in the file; what is wrong goes to ``faults``.

    Raises:
        FormatError: the file cannot be read at all.
    """
    for data, place in documents(source, faults):
        if not isinstance(data, dict):
            faults.add(place, f"expected a grader or an item, found {describe(data)}")
        elif "item" in data or "messages" in data or not (held := _held(data)):
            record = _item(data if "item" in data else {"item": data}, place, faults)
            yield from (record,) if record else ()
        else:
            graders = (grader_of(one, place, faults, steps) for steps, one in held)
            yield from (
                Record(None, rubric_of(one), name=usable_name(one.label), place=place) for one in graders if one
            )


_HOLDERS: tuple[Steps, ...] = (("grader",), ("reinforcement", "grader"), ("method", "reinforcement", "grader"))


def _held(data: dict[str, Any]) -> list[tuple[Steps, Any]]:
    """The graders in a record, each with the way to it; none in a row of data."""
    if isinstance(several := data.get("testing_criteria"), list):
        return [(("testing_criteria", number), one) for number, one in enumerate(several)]
    for steps in _HOLDERS:
        here: Any = data
        for step in steps:
            here = here.get(step) if isinstance(here, dict) else None
        if here is not None:
            return [(steps, here)]
    return [((), data)] if "type" in data and data.keys() & {"name", "input", "source", "graders"} else []


def _item(data: dict[str, Any], place: Place, faults: Faults) -> Record | None:
    before = faults.count
    unknown_fields(data, _FIELDS, place, faults, ())
    item = data.get("item", {})
    grader = grader_of(data["grader"], place, faults, ("grader",)) if "grader" in data else None
    prompt = prompt_of(item, place, faults, ("item",))
    said = data.get("model_sample")
    if said is not None and not isinstance(said, str):
        faults.add(place, f"expected text, found {describe(said)}", ("model_sample",))
    if faults.count > before or prompt is None:
        return None
    number = data.get("id", item.get("id"))
    name = usable_name(f"{grader.label} {prompt.digest[:12]}") if grader else ""  # each prompt has its own rubric
    return Record(
        prompt,
        rubric_of(grader) if grader else None,
        (Completion(text=said),) if said is not None else (),
        id=str(number) if isinstance(number, str | int) and number != "" else None,
        name=name,
        place=place,
    )


def prompt_of(item: Any, place: Place, faults: Faults, steps: Steps = ()) -> Prompt | None:
    """The prompt of an item; or None, with its faults added."""
    if not isinstance(item, dict):
        faults.add(place, f"expected a mapping, found {describe(item)}", steps)
        return None
    messages = item.get("messages") or [{"role": "user", "content": json.dumps(item, ensure_ascii=False)}]
    return build(Prompt, {"messages": messages, "item": item}, place, faults, steps)


def grader_of(data: Any, place: Place, faults: Faults, steps: Steps = ()) -> Grader | None:
    """The grader in plain data; or None, with its faults added."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in GRADERS:
        expected = f"expected {', '.join(GRADERS)}"
        faults.add(place, f"{expected}, found {describe(kind)}", (*steps, "type"))
        return None
    parts = data.get("graders")
    if isinstance(parts, dict) and isinstance(parts.get("type"), str):
        alone = parts.get("name") or parts["type"]  # one grader, as the type in OpenAI's client has it
        data = {**data, "graders": {str(alone): parts}}
    return build(GRADERS[kind], data, place, faults, steps)


def parse(data: Any) -> Grader:
    """A grader out of plain data that stands in no file.

    Raises:
        InvalidError: it is none; ``path`` names the field.
    """
    faults = Faults()
    grader = grader_of(data, Place("grader"), faults, ("grader",))
    if grader is None:
        told = [fault.message for fault in faults.kept]
        path = told[0].partition(": ")[0]
        raise InvalidError("; ".join(told[:_TOLD]), hint="docs/graders.md describes the graders", path=path)
    return grader


_TOLD = 8
