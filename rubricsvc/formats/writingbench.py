"""WritingBench (arXiv 2503.05244): five criteria for each query, scored 1 to 10, with a description for each band."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Numeric, Rubric
from rubricsvc.formats.foreign import keys_of, prompt_in, rubric_in
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, ForeignModel, Record, Row, Text

BANDS = ("1-2", "3-4", "5-6", "7-8", "9-10")
_SCALE = Numeric(low=1.0, high=10.0)
_TEXT = re.compile(
    r"(?P<head>.*?)(?:\n\n" + r"\n".join(rf"{band}: (?P<band{n}>.*?)" for n, band in enumerate(BANDS)) + ")?",
    re.DOTALL,
)


class _Item(ForeignModel):
    name: Text
    criteria_description: Text
    bands: tuple[str, ...] = ()


class _Query(ForeignModel):
    index: int
    domain1: str = ""
    domain2: str = ""
    query: Text
    checklist: Annotated[tuple[_Item, ...], Field(min_length=1)]


def read(entry: Entry) -> Iterator[Record]:
    """Yield the record of a query. The bands are part of a criterion's text."""
    data = entry.data
    if isinstance(data, dict) and isinstance(data.get("checklist"), list):
        checklist = [
            {**one, "bands": [one[band] for band in BANDS if band in one]} if isinstance(one, dict) else one
            for one in data["checklist"]
        ]
        data = {**data, "checklist": checklist}
    given = entry.build(_Query, data)
    criteria = []
    keys = keys_of([item.name for item in given.checklist])
    for place, (key, item) in enumerate(zip(keys, given.checklist, strict=True)):
        if len(item.bands) not in (0, len(BANDS)):
            entry.add("length", f"expected a description for each of {', '.join(BANDS)}", ("checklist", place))
            continue
        bands = "\n".join(f"{band}: {text}" for band, text in zip(BANDS, item.bands, strict=False))
        text = item.criteria_description + ("\n\n" + bands if bands else "")
        criteria.append(entry.make(Criterion, ("checklist", place), key=key, text=text, scale=_SCALE))
    if not criteria:
        return
    prompt = Prompt.of(given.query, tags=[tag for tag in (given.domain1, given.domain2) if tag])
    name = rubric_name(f"writingbench-{given.index}")
    rubric = Rubric(criteria=tuple(criteria), formula="mean")
    yield Record(prompt, rubric, id=str(given.index), name=name, location=entry.location)


def dump(record: Record) -> Iterator[Row]:
    """Yield the row of a query; its index is the id where that is a number."""
    rubric, prompt = rubric_in(record, "writingbench", pitfalls=False), prompt_in(record, "writingbench")
    checklist = []
    for criterion in rubric.criteria:
        parts = _TEXT.fullmatch(criterion.text)
        bands = (
            {band: parts[f"band{n}"] for n, band in enumerate(BANDS)} if parts and parts["band0"] is not None else {}
        )
        head = parts["head"] if parts and bands else criterion.text
        checklist.append({"name": criterion.key, "criteria_description": head, **bands})
    domain1, domain2, *_ = (*prompt.tags, "", "")
    index = int(record.id) if record.id and record.id.isdecimal() else 0
    yield {"index": index, "domain1": domain1, "domain2": domain2, "query": prompt.text, "checklist": checklist}
