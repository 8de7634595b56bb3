"""Canvas' CSV of rubrics: one criterion a row, with any number of ratings, each in three columns.

The highest rating is a criterion's weight, and the ratings are its levels, by their share of it. The ratings ``Met``
and ``Not met`` are a binary criterion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import escape, unescape
from itertools import count
from typing import Any

from rubricsvc.core.rubric import Binary, Criterion, Level, Numeric, Ordinal, Rubric, Scale
from rubricsvc.formats.csv_cells import restored_row
from rubricsvc.formats.errors import InvalidFileError
from rubricsvc.formats.foreign import keys_of, rubric_in
from rubricsvc.formats.input_file import InputFile, append_row
from rubricsvc.formats.native import rubric_name
from rubricsvc.formats.record import Entry, Record, Row

NAME, CRITERION, DESCRIPTION, RANGE = "Rubric Name", "Criteria Name", "Criteria Description", "Criteria Enable Range"
COLUMNS = (NAME, CRITERION, DESCRIPTION, RANGE)
RATING = ("Rating Name", "Rating Description", "Rating Points")
_MET, _NOT_MET = "Met", "Not met"
_IS_RANGE = "range"


def matches(first: Any) -> bool:
    """Return whether a file with this first record is Canvas'."""
    return isinstance(first, dict) and first.keys() >= {NAME, CRITERION}


def read(file: InputFile) -> Iterator[Record]:
    """Yield a record for each rubric of the file."""
    rubrics: dict[str, list[Entry]] = {}
    for row in file.parse(_row):
        append_row(rubrics.setdefault(row.data[NAME], []), row)
    yield from file.parse(_record, map(_grouped, rubrics.values()))


def _row(entry: Entry) -> Iterator[Entry]:
    if not isinstance(entry.data, dict):
        entry.expected("dict_type", "a row with columns", entry.data)
        return
    cells = restored_row(entry.data).items()
    entry.data = {name: unescape(cell) if isinstance(cell, str) else cell for name, cell in cells}
    missing = [name for name in (NAME, CRITERION) if not str(entry.data.get(name) or "").strip()]
    for name in missing:
        entry.add("missing", "is missing", (name,))
    if not missing:
        yield entry


def _grouped(rows: list[Entry]) -> Entry:
    return replace(
        rows[0],
        data=[row.data for row in rows],
        location=replace(
            rows[0].location, positions={(place,): (row.location.line or 1, 1) for place, row in enumerate(rows)}
        ),
        errors=[],
        notes=[],
    )


def _record(entry: Entry) -> Iterator[Record]:
    keys = keys_of([row[CRITERION] for row in entry.data])
    criteria = tuple(
        _criterion(entry, place, key, row) for place, (key, row) in enumerate(zip(keys, entry.data, strict=True))
    )
    if entry.errors:
        raise InvalidFileError(entry.errors)
    rubric = entry.make(Rubric, (), criteria=criteria)
    yield Record(None, rubric, name=rubric_name(entry.data[0][NAME]), location=entry.location)


def _criterion(entry: Entry, place: int, key: str, row: dict[str, Any]) -> Criterion:
    ratings = list(_ratings(entry, place, row))
    most = max((points for *_, points in ratings), default=0.0)
    if len(ratings) < 2 or most <= 0 or min(points for *_, points in ratings) < 0:
        message = f"expected two or more ratings with points from 0 up, found {len(ratings)}"
        entry.add("length", message, (place, RATING[2]))
        return Criterion(key=key, text=row[CRITERION])
    scale: Scale = Binary()
    if [(name, points) for name, _, points in ratings] != [(_MET, most), (_NOT_MET, 0.0)]:
        levels = tuple(Level(label=name, value=points / most, text=text) for name, text, points in ratings)
        scale = entry.make(Ordinal, (place, RATING[0]), levels=levels)
    tags = (_IS_RANGE,) if str(row.get(RANGE, "")).strip().casefold() in ("true", "yes", "1") else ()
    text = row.get(DESCRIPTION) or row[CRITERION]
    return entry.make(Criterion, (place,), key=key, text=text, weight=most, scale=scale, tags=tags)


def _ratings(entry: Entry, place: int, row: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    for number in count(1):
        columns = _rating_columns(number)
        if not row.keys() & set(columns):
            return
        name, text, points = (row.get(column, "") for column in columns)
        try:
            yield str(name or points), str(text), float(points)
        except ValueError:
            entry.expected("float_parsing", "a number of points", points, (place, columns[2]))


def _rating_columns(number: int) -> tuple[str, ...]:
    """Return the columns of a rating; the reader of CSV numbers repeated columns."""
    return RATING if number == 1 else tuple(f"{name} {number}" for name in RATING)


def dump(record: Record) -> Iterator[Row]:
    """Yield a row for each criterion. Canvas shows texts as HTML, so that they are escaped."""
    rubric = rubric_in(record, "canvas", pitfalls=False)
    for criterion in rubric.criteria:
        text = "" if criterion.text == criterion.key else criterion.text
        is_range = isinstance(criterion.scale, Numeric) or _IS_RANGE in criterion.tags
        row: Row = {NAME: record.name, CRITERION: criterion.key, DESCRIPTION: text, RANGE: str(is_range).lower()}
        for number, rating in enumerate(_levels(criterion), start=1):
            row |= dict(zip(_rating_columns(number), rating, strict=True))
        yield {name: escape(cell, quote=False) if isinstance(cell, str) else cell for name, cell in row.items()}


def _levels(criterion: Criterion) -> list[tuple[str, str, float]]:
    weight = criterion.weight
    match criterion.scale:
        case Ordinal(levels=levels):
            return [(level.label, level.text, level.value * weight) for level in levels]
        case Numeric(low=low, high=high):
            return [(f"{high:g}", "", weight), (f"{low:g}", "", 0.0)]
    return [(_MET, "", weight), (_NOT_MET, "", 0.0)]
