"""DeepScholar-bench's nuggets (arXiv 2508.20033): facts of a related-work section, vital or okay.

The weights, 1 for a vital nugget and 0.5 for an okay one, and the three levels of support are those of the nugget
evaluation of TREC RAG (arXiv 2411.09607). A folder has one ``res.json`` in each of its folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Level, Ordinal, Rubric
from rubricsvc.errors import InvalidError
from rubricsvc.formats.foreign import prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

_WEIGHTS = {"vital": 1.0, "okay": 0.5}
_SUPPORT = {"not_support": 0.0, "partial_support": 0.5, "support": 1.0}
_SCALE = Ordinal(levels=tuple(Level(label=label, value=value) for label, value in _SUPPORT.items()))


class _Nugget(ForeignModel):
    text: Text
    importance: Literal["vital", "okay"]


class _Result(ForeignModel):
    qid: str | int | None = None
    query: Text
    nuggets: Annotated[tuple[_Nugget, ...], Field(min_length=1)]


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a query. How far a text supports the nuggets is not read: the text is not in the file."""
    given = entry.build(_Result, entry.data)
    criteria = tuple(
        Criterion(
            key=f"c{number}",
            text=nugget.text,
            weight=_WEIGHTS[nugget.importance],
            scale=_SCALE,
            tags=(nugget.importance,),
        )
        for number, nugget in enumerate(given.nuggets, start=1)
    )
    id_ = str(given.qid) if given.qid not in (None, "") else None
    name = rubric_name(f"deepscholar-{id_ or entry.name}")
    yield Record(Prompt.of(given.query), Rubric(criteria=criteria), id=id_, name=name, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a query."""
    rubric, prompt = rubric_in(record, "deepscholar", pitfalls=False), prompt_in(record, "deepscholar")
    names = {weight: name for name, weight in _WEIGHTS.items()}
    nuggets = []
    for number, criterion in enumerate(rubric.criteria):
        if criterion.weight not in names:
            message = f"nuggets have weight 1 (vital) or 0.5 (okay), found {criterion.weight:g}"
            raise InvalidError(message, hint="choose another --format", path=f"criteria[{number}].weight")
        nuggets.append({"text": criterion.text, "importance": names[criterion.weight]})
    yield {"qid": record.id, "query": prompt.text, "nuggets": nuggets}
