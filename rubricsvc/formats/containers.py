"""Files as plain data: JSON, JSONL, CSV, TOML, Parquet and Arrow, with the line of each record."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rubricsvc.core.strict_json import JsonError, check_storable, has_more_values, parse
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import FieldError, FileErrors, Location, file_error, too_many_values
from rubricsvc.formats.record import Row

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line of JSONL."""

Document = tuple[Any, Location, list[FieldError]]
"""One record as plain data, where it is, and its errors as a text."""

_GAP = re.compile(r"[\s,]*")


def read_lines(stream: BinaryIO, file: str, errors: FileErrors, max_values: int | None = None) -> Iterator[Document]:
    """Yield one record for each line that is not blank. A line that is not JSON is added to ``errors``.

    Raises:
        InvalidFileError: a line is too long, or has more than ``max_values`` keys and values.
    """
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
        if len(line) > MAX_LINE:
            message = "line is too long; expected one record on a line"
            raise file_error(Location(file, number), "line_too_long", message)
        if not line.strip():
            continue
        try:
            text = line.decode().rstrip()
            _check_size(text, Location(file, number), max_values)
            yield from _read_record(text, Location(file, number), errors)
        except UnicodeDecodeError as error:
            errors.add(Location(file, number).error("encoding", f"{not_utf8(error)}; save the file as UTF-8"))


def _read_record(text: str, location: Location, errors: FileErrors) -> Iterator[Document]:
    """Yield the record in a JSON text; one that is not JSON is added to ``errors``."""
    try:
        yield parse(text), location, []
    except JsonError as error:
        known = Location(location.file, location.line, error.column).error(error.code, str(error), error.path)
        if error.code == "duplicate_key" and (data := _decode(text)) is not None:  # its fields can be validated
            yield data, location, [known]
        else:
            errors.add(known)


def _check_size(text: str, location: Location, max_values: int | None) -> None:
    if max_values is not None and has_more_values(text, max_values):
        raise too_many_values(location, max_values)


def read_document(text: str, file: str, errors: FileErrors, max_values: int | None = None) -> Iterator[Document]:
    """Yield the records of a JSON text: the items of a list, or the one value that it is.

    An item with a duplicate key or a value that cannot be stored is added to ``errors``.

    Raises:
        InvalidFileError: it is not JSON, or has more than ``max_values`` keys and values.
    """
    _check_size(text, Location(file), max_values)
    valid = True
    try:
        data = parse(text)
    except JsonError as error:
        valid, data = False, _decode(text)
        if not isinstance(data, list):
            raise file_error(Location(file, error.line, error.column), error.code, str(error)) from None
    start = len(text) - len(text.lstrip())
    if not isinstance(data, list):
        yield data, Location(file, 1 + text.count("\n", 0, start)), []
        return
    decoder, end, line = json.JSONDecoder(), start + 1, 1 + text.count("\n", 0, start)
    for item in data:  # decoded once more to learn where each ends
        start = _GAP.match(text, end).end()  # type: ignore[union-attr]  # it matches the empty text too
        line += text.count("\n", end, start)
        end = decoder.raw_decode(text, start)[1]
        if valid:
            yield item, Location(file, line), []
        else:
            yield from _read_record(text[start:end], Location(file, line), errors)
        line += text.count("\n", start, end)


def _decode(text: str) -> Any:
    """Return the data of a text that is JSON but for its duplicate keys and values; None for another text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return the message for bytes that are not UTF-8."""
    return f"byte 0x{error.object[error.start]:02x} is not UTF-8 text"


_DELIMITERS = ",;\t"


_REPEATED = ("Rating Name", "Rating Description", "Rating Points")
"""Columns that Canvas repeats for each rating."""


def read_csv(text: str, file: str, max_values: int | None = None) -> Iterator[Document]:
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
                seen: Counter[str] = Counter()
                for name in map(str.strip, row):
                    seen[name] += 1
                    columns.append(f"{name} {seen[name]}" if name in _REPEATED and seen[name] > 1 else name)
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


_FORMULA = re.compile(r"'*\s*[=+\-@\t\r\n＝＋－＠]")
"""Beginnings that make a spreadsheet take a cell for a formula (OWASP, CSV injection), quoted or not."""


def restored(cell: str) -> str:
    """Return the text that `neutralized` wrote into a cell; ``'-`` is left as it is, since texts may begin with it."""
    return cell[1:] if cell.startswith("'") and cell[1:2] != "-" and _FORMULA.match(cell) else cell


def restored_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the text of its cells."""
    return {name: restored(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def neutralized(value: Any) -> Any:
    """Return a text behind a single quote if a spreadsheet could take it for a formula; other values as they are."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


_AT = re.compile(r" \(at line (\d+), column (\d+)\)")
_HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")


def read_toml(text: str, file: str) -> Iterator[Document]:
    """Yield the document.

    Raises:
        InvalidFileError: it is not TOML, or has a value that cannot be stored.
    """
    try:
        data = json.loads(json.dumps(tomllib.loads(text)))  # dates are no values of a rubric
        check_storable(data)
    except tomllib.TOMLDecodeError as error:
        place = _AT.search(str(error))
        location = Location(file, int(place[1]), int(place[2])) if place else Location(file)
        hint = "quote texts; a text of several lines has three quotes at both ends"
        raise file_error(location, "toml_invalid", f"is not TOML: {_AT.sub('', str(error))}", hint) from None
    except (TypeError, RecursionError):
        raise file_error(Location(file), "toml_invalid", "has a date or a time, or is nested too deep") from None
    except (JsonError, ValueError) as error:
        raise file_error(Location(file), "unstorable", str(error)) from None
    yield data, Location(file, 1, positions=_positions(text, data)), []


def _positions(text: str, data: dict[str, Any]) -> dict[FieldPath, tuple[int, int]]:
    """Return the lines of tables and keys; none where texts of several lines look like tables."""
    positions: dict[FieldPath, tuple[int, int]] = {}
    table: FieldPath = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            name = header[2]
            counts[name] = counts.get(name, 0) + 1
            table = (name, counts[name] - 1) if header[1] == "[[" else (name,)
            positions[table] = (number, 1)
        elif key := _KEY.match(line):
            positions.setdefault((*table, key[1]), (number, 1))
    lists = {name: len(value) for name, value in data.items() if isinstance(value, list)}
    return positions if all(counts.get(name, 0) == length for name, length in lists.items()) else {}


ROWS = 1000
"""Rows that are in memory."""


def read_parquet(stream: BinaryIO, file: str, *, arrow: bool = False) -> Iterator[Document]:
    """Yield a record for each row; nulls are left out. The line of a record is the number of its row.

    Raises:
        InvalidFileError: pyarrow is not installed, or it is not Parquet (with ``arrow``: Arrow's stream).
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError:
        hint = "pip install 'rubricsvc[parquet]'"
        raise file_error(Location(file), "not_readable", "pyarrow is not installed", hint) from None
    number = 0
    try:
        batches = pa.ipc.open_stream(stream) if arrow else parquet.ParquetFile(stream).iter_batches(batch_size=ROWS)
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield _document(row, file, number)
    except (pa.ArrowException, OSError) as error:
        what = "Arrow" if arrow else "Parquet"
        raise file_error(Location(file, number or None), "not_readable", f"is not {what}: {error}") from None


def _document(row: Row, file: str, number: int) -> Document:
    location = Location(file, number)
    try:
        data = _without_nulls(row)
        check_storable(data)
    except (JsonError, TypeError, ValueError) as error:
        return {}, location, [location.error("unstorable", str(error))]
    return data, location, []


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"expected text, numbers, lists and mappings, found {type(value).__name__}")


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """Write all rows to a Parquet file, whose columns are those that the rows have.

    Raises:
        InvalidError: pyarrow is not installed, or a column has values of several types.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise InvalidError("pyarrow is not installed", hint="pip install 'rubricsvc[parquet]'") from None
    try:
        parquet.write_table(pa.Table.from_pylist([_filled(row) for row in rows]), path, compression="zstd")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        message = f"a row does not fit into Parquet: {error}"
        raise InvalidError(message, hint="write JSON lines: --out FILE.jsonl") from error


def _filled(value: Any) -> Any:
    """Return a value without empty mappings, which Parquet has no type for."""
    if isinstance(value, dict):
        return {name: _filled(item) for name, item in value.items() if item != {}}
    return [_filled(item) for item in value] if isinstance(value, list) else value
