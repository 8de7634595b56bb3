"""CSV files: a row is a mapping of the column names in the first line to texts. Empty cells are left out."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator

from rubricsvc.formats.errors import Location, file_error, too_many_values
from rubricsvc.formats.json_records import Document

_DELIMITERS = ",;\t"


_REPEATED = ("Rating Name", "Rating Description", "Rating Points")
"""Columns that Canvas repeats for each rating."""


def _numbered(columns: list[str]) -> list[str]:
    """Return the columns with the repeated ones of Canvas numbered: ``Rating Name 2``."""
    seen: Counter[str] = Counter()
    for place, name in enumerate(columns):
        seen[name] += 1
        if name in _REPEATED and seen[name] > 1:
            columns[place] = f"{name} {seen[name]}"
    return columns


def read(text: str, file: str, max_values: int | None = None) -> Iterator[Document]:
    """Yield a record for each row. Cells are separated by commas, or by semicolons or tabs if the first line has more.

    Raises:
        InvalidFileError: the columns have no distinct names, or a row has more cells than there are columns.
    """
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # of the process; a completion may be long
    head = text.split("\n", 1)[0]
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=max(_DELIMITERS, key=head.count), strict=True)
    columns: list[str] = []
    line, values = 1, 0
    try:
        for row in rows:
            location = Location(file, line)
            line = rows.line_num + 1
            values += len(row)
            if max_values is not None and values > max_values:
                raise too_many_values(location, max_values)
            if not any(cell.strip() for cell in row):
                continue
            if not columns:
                columns = _numbered([name.strip() for name in row])
                if "" in columns or len(set(columns)) < len(columns):
                    raise file_error(location, "columns", "expected a distinct name for each column in the first line")
            elif len(row) > len(columns):
                hint = 'quote cells that hold the separator: "first, second"'
                message = f"has {len(row)} cells, and there are {len(columns)} columns"
                raise file_error(location, "columns", message, hint)
            else:
                cells = zip(columns, row, strict=False)
                yield {name: cell for name, cell in cells if cell.strip()}, location, []
    except csv.Error as error:
        hint = 'close each quote; write a quote in a quoted cell as ""'
        raise file_error(Location(file, line), "csv", f"is not CSV: {error}", hint) from None
