"""Labels of dr-tulu (arXiv 2511.19399) and open-instruct: ``{query, rubrics: [{description, weight}]}`` as JSON.

The label is the text of the column ``ground_truth`` beside ``messages``, or the record itself. Both projects write the
same; their formulas differ, so the format is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, cast

from pydantic import Field

from rubricsvc.core import strict_json
from rubricsvc.core.prompt import Message, Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.errors import InvalidFileError
from rubricsvc.formats.foreign import keys_of, messages_of, plain_weight, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

_SCALE = Ordinal(levels=tuple(Level(label=str(score), value=score / 2) for score in range(3)))
"""Their judges score 0, 1 or 2."""


class _Item(ForeignModel):
    description: Text
    weight: float = 1.0
    title: str | None = None


class _Label(ForeignModel):
    query: str = ""
    rubrics: Annotated[tuple[_Item, ...], Field(min_length=1)]


class _Messages(ForeignModel):
    messages: Annotated[tuple[Message, ...], Field(min_length=1)]


def matches(first: Any) -> bool:
    """Return whether a file with this first record has labels of rubrics."""
    if not isinstance(first, dict):
        return False
    label = _decoded(first["ground_truth"]) if "ground_truth" in first else first
    if not isinstance(label, dict) or not label.keys() >= {"query", "rubrics"} or "nuggets" in label:
        return False
    items = label["rubrics"]
    return isinstance(items, list) and all(isinstance(one, dict) and "description" in one for one in items)


def _decoded(text: Any) -> Any:
    """Return the label in a column, which is JSON or a list with one such text."""
    if isinstance(text, list) and len(text) == 1:
        text = text[0]
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_dr_tulu(entry: Entry) -> Iterator[Record]:
    """Yield the record of a label, with the formula ``dr_tulu``."""
    yield _record(entry, "dr_tulu")


def read_open_instruct(entry: Entry) -> Iterator[Record]:
    """Yield the record of a label, with the formula ``open_instruct``."""
    yield _record(entry, "open_instruct")


def _record(entry: Entry, formula: str) -> Record:
    data, path = entry.data, cast(FieldPath, ())
    messages: tuple[Message, ...] = ()
    if isinstance(data, dict) and "ground_truth" in data:
        path = ("ground_truth",)
        if "messages" in data:
            messages = entry.build(_Messages, data).messages
        if not isinstance(data := _decoded(data["ground_truth"]), dict):
            entry.expected("json_invalid", 'JSON like {"query": "…", "rubrics": […]}', entry.data["ground_truth"], path)
            raise InvalidFileError(entry.errors)
    label = entry.build(_Label, data, path)
    criteria = tuple(
        entry.make(Criterion, (*path, "rubrics", n), key=key, text=one.description, weight=one.weight, scale=_SCALE)
        for n, (key, one) in enumerate(zip(keys_of([one.title for one in label.rubrics]), label.rubrics, strict=True))
    )
    asked = messages[:-1] if messages and messages[-1].role == "assistant" else messages
    asked = asked or ((Message(role="user", content=label.query),) if label.query else ())
    rubric = entry.make(Rubric, path, criteria=criteria, formula=formula)
    name = rubric_name(f"{formula.replace('_', '-')}-{entry.name}")
    return Record(Prompt(messages=asked) if asked else None, rubric, name=name, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a label, beside its messages where there is a prompt."""
    rubric = rubric_in(record, "the labels of dr_tulu and open_instruct")
    items = [{"description": one.text, "weight": plain_weight(one.weight), "title": one.key} for one in rubric.criteria]
    query = record.prompt.text if record.prompt else ""
    label = strict_json.dump({"query": query, "rubrics": items})
    messages = {"messages": messages_of(record.prompt)} if record.prompt else {}
    yield {**messages, "ground_truth": label, "dataset": "rubric"}
