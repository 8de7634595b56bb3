"""Parquet and Arrow files: a row is a record. Rows are read in batches, and written in row groups of fixed columns.

Arrow has no free-form data. In rows of the native format the fields that are (scales, checks, items, …) are JSON texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rubricsvc.core import strict_json
from rubricsvc.core.rubric import Criterion
from rubricsvc.core.strict_json import JsonError, check_storable
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import Location, file_error
from rubricsvc.formats.json_records import Document
from rubricsvc.formats.native import FIELDS
from rubricsvc.formats.record import Row

ROWS = 1000
"""Rows that are in memory."""

_TEXTS = ("id", "name", "formula", "reference", "expression")
_CRITERION = {
    **dict.fromkeys(("key", "text", "reference"), "string"),
    "weight": "float64",
    "required": "bool_",
    **dict.fromkeys(("group", "tags", "passages"), "list"),
}
"""Fields of a criterion that have a type in Arrow; the others are JSON."""


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
    if isinstance(data.get("criteria"), list) or "completions" in data:
        _decode(data)
    return data, location, []


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"expected text, numbers, lists and mappings, found {type(value).__name__}")


def _decode(data: Row) -> None:
    """Decode the JSON texts of a record in the native format."""
    holders = [(data, _TEXTS), *((one, _CRITERION) for one in data.get("criteria", ()) if isinstance(one, dict))]
    for holder, plain in holders:
        for name, value in holder.items():
            if name not in plain and isinstance(value, str) and value[:1] in ("{", "["):
                try:
                    holder[name] = json.loads(value)
                except ValueError:
                    continue  # the format reports what it is instead


def encoded(row: Row) -> Row:
    """Return a row of the native format with its free-form fields as JSON."""
    texts = {name: value if name in _TEXTS else strict_json.dump(value) for name, value in row.items()}
    texts |= {name: float(row[name]) for name in ("min_coverage",) if name in row}
    if "tags" in row:
        texts["tags"] = row["tags"]
    if "criteria" in row:
        texts["criteria"] = [
            {name: value if name in _CRITERION else strict_json.dump(value) for name, value in one.items()}
            for one in row["criteria"]
        ]
    if isinstance(row.get("prompt"), str):
        texts["prompt"] = (
            row["prompt"]
            if row["prompt"][:1] not in ("{", "[")
            else strict_json.dump([{"role": "user", "content": row["prompt"]}])
        )
    return texts


def native_schema() -> Any:
    """Return the Arrow schema of rows in the native format."""
    import pyarrow as pa

    def typed(name: str) -> Any:
        return pa.list_(pa.string()) if name == "list" else getattr(pa, name)()

    criterion = pa.struct({name: typed(_CRITERION.get(name, "string")) for name in Criterion.model_fields})
    special = {"criteria": pa.list_(criterion), "tags": pa.list_(pa.string()), "min_coverage": pa.float64()}
    return pa.schema({name: special.get(name, pa.string()) for name in FIELDS})


def schema_of(pages: Iterable[list[Row]]) -> Any:
    """Return the Arrow schema that fits all rows of other formats.

    Raises:
        InvalidError: a column has values of several types.
    """
    import pyarrow as pa

    schema = None
    try:
        for page in pages:
            found = pa.Table.from_pylist(page).schema
            schema = found if schema is None else pa.unify_schemas([schema, found], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise _misfit(error) from error
    return schema


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

Exported by `rubricsvc {command}`; `docs/formats.md` of rubricsvc describes the columns.
"""
