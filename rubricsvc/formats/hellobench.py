"""HelloBench (arXiv 2409.16191): a checklist for each instruction; an item is scored 0, 0.25, 0.5, 0.75 or 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.formats.foreign import levels, prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

_SCALE = levels(0.0, 0.25, 0.5, 0.75, 1.0)


class _Query(ForeignModel):
    id: Text
    category: str = ""
    instruction: Text
    checklists: Annotated[tuple[Text, ...], Field(min_length=1)]


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of an instruction. The weights that were fitted per category are not in these files."""
    given = entry.build(_Query, entry.data)
    criteria = tuple(
        Criterion(key=f"c{number}", text=text, scale=_SCALE) for number, text in enumerate(given.checklists, start=1)
    )
    prompt = Prompt.of(given.instruction, tags=[given.category] if given.category else [])
    name = rubric_name(f"hellobench-{given.id}")
    rubric = Rubric(criteria=criteria, formula="mean")
    yield Record(prompt, rubric, id=given.id, name=name, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of an instruction."""
    rubric, prompt = rubric_in(record, "hellobench", pitfalls=False), prompt_in(record, "hellobench")
    texts = [criterion.text for criterion in rubric.criteria]
    id_, category = record.id or record.name or "1", prompt.tags[0] if prompt.tags else ""
    row: Row = {"id": id_, "category": category, "instruction": prompt.text, "checklists": texts}
    yield row | {"num_checklist": len(texts)}
