"""Parquet and Arrow files: a row is a record. Rows are read in batches, and written in row groups of fixed columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rubricsvc.core.strict_json import JsonError, check_storable
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import Location, file_error
from rubricsvc.formats.json_records import Document
from rubricsvc.formats.record import Row

ROWS = 1000
"""Rows that are in memory."""


def read(stream: BinaryIO, file: str, *, arrow: bool = False) -> Iterator[Document]:
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


def write(rows: Iterable[Row], path: Path) -> None:
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
        raise _misfit(error) from error


def _filled(value: Any) -> Any:
    """Return a value without empty mappings, which Parquet has no type for."""
    if isinstance(value, dict):
        return {name: _filled(item) for name, item in value.items() if item != {}}
    return [_filled(item) for item in value] if isinstance(value, list) else value


def _misfit(error: Exception) -> InvalidError:
    return InvalidError(f"a row does not fit into Parquet: {error}", hint="write JSON lines: --out FILE.jsonl")


@contextmanager
def writer(path: Path, schema: Any) -> Iterator[Callable[[list[Row]], None]]:
    """Open a Parquet file, and yield the function that writes a row group to it."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetWriter(path, schema, compression="zstd") as file:

        def write(rows: list[Row]) -> None:
            try:
                file.write_table(pa.Table.from_pylist(rows, schema=schema))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
                raise _misfit(error) from error

        yield write


def write_card(folder: Path, title: str, command: str) -> None:
    """Write the README by which ``datasets.load_dataset`` reads a folder of Parquet files."""
    (folder / "README.md").write_text(_CARD.format(title=title, command=command), encoding="utf-8")


_CARD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---

# {title}

Exported by `rubricsvc {command}`; `docs/exports.md` of rubricsvc describes the columns.
"""
