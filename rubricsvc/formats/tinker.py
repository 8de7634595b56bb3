"""tinker-cookbook's rubric data: a conversation and ``rubric_items``, each scored from 0 to 1 by its own request.

How a reply is parsed (``extraction_regex``, ``grader_output_format_instruction``) is a matter of the judge here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from rubricsvc.core.prompt import Message, Prompt
from rubricsvc.core.rubric import Criterion, Numeric, Rubric
from rubricsvc.formats.foreign import messages_of, prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

REGEX = r"<score>(.*)</score>"
INSTRUCTION = "Please output your score between 0 and 1 wrapped in <score> ... </score>"
_SCALE = Numeric(low=0.0, high=1.0)


class _Item(ForeignModel):
    rubric_str: Text
    extraction_regex: str = REGEX
    grader_output_format_instruction: str = INSTRUCTION


class _Datapoint(ForeignModel):
    convo: Annotated[tuple[Message, ...], Field(min_length=1)]
    rubric_items: Annotated[tuple[_Item, ...], Field(min_length=1)]


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a datapoint."""
    given = entry.build(_Datapoint, entry.data)
    for place, item in enumerate(given.rubric_items):
        if (item.extraction_regex, item.grader_output_format_instruction) != (REGEX, INSTRUCTION):
            message = "how a reply is parsed is a matter of the judge; its mode says how (docs/judges.md)"
            entry.note("judge", message, ("rubric_items", place))
    criteria = tuple(
        Criterion(key=f"c{n}", text=one.rubric_str, scale=_SCALE) for n, one in enumerate(given.rubric_items, start=1)
    )
    name = rubric_name(f"tinker-{entry.name}")
    rubric = Rubric(criteria=criteria, formula="tinker")
    yield Record(Prompt(messages=given.convo), rubric, name=name, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a rubric."""
    rubric, prompt = rubric_in(record, "tinker", pitfalls=False), prompt_in(record, "tinker")
    asked = {"extraction_regex": REGEX, "grader_output_format_instruction": INSTRUCTION}
    items = [{"rubric_str": criterion.text, **asked} for criterion in rubric.criteria]
    yield {"convo": messages_of(prompt), "rubric_items": items}
