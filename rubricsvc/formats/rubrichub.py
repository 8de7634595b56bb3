"""RubricHub (arXiv 2601.08430): ``{question, id, rubrics: [{criterion, points}]}``, or with title and description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.foreign import keys_of, plain_weight, prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text


class _Item(ForeignModel):
    criterion: Text | None = None
    points: float | None = None
    title: str | None = None
    description: Text | None = None
    weight: float | None = None


class _Question(ForeignModel):
    question: Text
    id: str | int | None = None
    rubrics: Annotated[tuple[_Item, ...], Field(min_length=1)]


def matches(first: Any) -> bool:
    """Return whether a file with this first record is one of RubricHub's."""
    return isinstance(first, dict) and first.keys() >= {"question", "rubrics"}


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a question."""
    given = entry.build(_Question, entry.data)
    criteria = []
    for place, (key, item) in enumerate(zip(keys_of([one.title for one in given.rubrics]), given.rubrics, strict=True)):
        path = ("rubrics", place)
        text, weight = item.criterion or item.description, item.weight if item.points is None else item.points
        if text is None or weight is None:
            entry.add("missing", "expected criterion and points, or description and weight", path)
        else:
            criteria.append(entry.make(Criterion, path, key=key, text=text, weight=weight))
    if not criteria:
        return
    id_ = str(given.id) if given.id not in (None, "") else None
    name = rubric_name(f"rubrichub-{id_ or entry.name}")
    rubric = entry.make(Rubric, ("rubrics",), criteria=tuple(criteria))
    yield Record(Prompt.of(given.question), rubric, id=id_, name=name, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a question."""
    rubric, prompt = rubric_in(record, "rubrichub"), prompt_in(record, "rubrichub")
    items = [{"criterion": one.text, "points": plain_weight(one.weight)} for one in rubric.criteria]
    yield {"question": prompt.text, "id": record.id, "rubrics": items}
