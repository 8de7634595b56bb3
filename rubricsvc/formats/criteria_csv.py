"""Criteria as CSV: one a row, with the columns ``criterion`` (its text) and ``weight``.

Further columns are ``key``, ``group``, ``required`` (yes or no), ``reference`` and ``tags`` (separated by semicolons).
Rows with the same ``id``, ``name`` and ``prompt`` are one rubric; without these columns all rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rubricsvc.core.validation_messages import FieldPath, unknown_field
from rubricsvc.formats import native
from rubricsvc.formats.csv_cells import restored_row
from rubricsvc.formats.foreign import plain_weight, rubric_in
from rubricsvc.formats.input_file import InputFile, append_row
from rubricsvc.formats.record import Entry, Record, Row

RECORD = ("id", "name", "prompt")
CRITERION = ("criterion", "weight", "key", "group", "required", "reference", "tags")
COLUMNS = (*RECORD, *CRITERION)
_BOOLEANS = {"yes": True, "true": True, "1": True, "x": True, "no": False, "false": False, "0": False}


def read(file: InputFile) -> Iterator[Record]:
    """Yield a record for each rubric; errors have the line of their criterion."""
    rubrics: dict[tuple[str | None, ...], list[Entry]] = {}
    for row in file.parse(_row):
        append_row(rubrics.setdefault(tuple(row.data.get(name) for name in RECORD), []), row)
    unknown: set[str] = set()
    entries = (_record(file, number, rows, unknown) for number, rows in enumerate(rubrics.values(), start=1))
    yield from (replace(record, text_only=True) for record in file.parse(native.read, entries))


def _row(entry: Entry) -> Iterator[Entry]:
    if isinstance(entry.data, dict):
        entry.data = restored_row(entry.data)
        yield entry
    else:
        entry.expected("dict_type", "a row with columns", entry.data)


def _record(file: InputFile, number: int, rows: list[Entry], unknown: set[str]) -> Entry:
    """Return the record of one rubric in the native format; each unknown column is an error once."""
    lines: dict[FieldPath, tuple[int, int]] = {
        ("criteria", place): (row.location.line or 1, 1) for place, row in enumerate(rows)
    }
    data: dict[str, Any] = {name: rows[0].data[name] for name in RECORD if name in rows[0].data}
    name = file.path.stem if number == 1 else f"{file.path.stem}-{number}"
    location = replace(rows[0].location, positions=lines, names={"text": "criterion"})
    record = Entry(data, location, name, number)
    data["criteria"] = [_criterion(record, row.data, place) for place, row in enumerate(rows)]
    for place, row in enumerate(rows):
        for column in row.data.keys() - {*RECORD, *CRITERION} - unknown:
            unknown.add(column)
            message = unknown_field(column, (*CRITERION, *RECORD))
            record.add("extra_forbidden", message, ("criteria", place, column))
    return record


def _criterion(record: Entry, row: dict[str, Any], place: int) -> dict[str, Any]:
    """Return a criterion in the native format; what is wrong with its cells is added to the record."""
    criterion = {name: row[name] for name in CRITERION[1:] if name in row}
    if "criterion" in row:
        criterion["text"] = row["criterion"]
    for name, (convert, expected) in _CELLS.items():
        if isinstance(cell := criterion.get(name), str):
            criterion[name] = convert(cell.strip())
            if criterion[name] is None:
                record.expected("shape", expected, cell, ("criteria", place, name))
                del criterion[name]
    return criterion


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


_CELLS: dict[str, tuple[Callable[[str], Any], str]] = {
    "weight": (_number, "a number such as 3 or -0.5"),
    "required": (lambda cell: _BOOLEANS.get(cell.lower()), "yes or no"),
    "tags": (lambda cell: [tag.strip() for tag in cell.split(";") if tag.strip()], "tags"),
}


def dump(record: Record) -> Iterator[Row]:
    """Yield a row for each criterion."""
    rubric = rubric_in(record, "criteria_csv")
    prompt = record.prompt.text if record.prompt else ""
    for one in rubric.criteria:
        fields = {"criterion": one.text, "weight": plain_weight(one.weight), "key": one.key}
        fields |= {"group": "/".join(one.group), "required": "yes" if one.required else ""}
        fields |= {"reference": one.reference or "", "tags": "; ".join(one.tags)}
        yield {"id": record.id or "", "name": record.name, "prompt": prompt, **fields}
