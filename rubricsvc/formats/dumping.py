"""Records into files of any format that can be written.

What a format cannot carry is found by reading back what was written: the fields that differ are lost.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO

from rubricsvc.core import strict_json
from rubricsvc.errors import InvalidError
from rubricsvc.formats import native, parquet_records, toml_records, yaml_records
from rubricsvc.formats.csv_cells import neutralized
from rubricsvc.formats.errors import FileErrors, InvalidFileError, Location
from rubricsvc.formats.input_file import InputFile
from rubricsvc.formats.record import Entry, Record, Row
from rubricsvc.formats.registry import FORMATS, Format
from rubricsvc.formats.rubric_errors import rubric_errors

CONTAINERS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".yaml": "yaml", ".yml": "yaml"} | {
    ".csv": "csv",
    ".tsv": "csv",
    ".toml": "toml",
    ".parquet": "parquet",
}
ROWS_PER_SHARD = 50_000
"""Rows of one Parquet file of a folder."""
_ENDINGS = {"csv": ".csv", "toml": ".toml"}


@dataclass
class Losses:
    """How many records were written, and in how many of them each field was lost or changed."""

    records: int = 0
    fields: Counter[str] = field(default_factory=Counter)

    def add(self, written: Record, read: Record | None) -> None:
        """Count the fields in which a record differs from what is read back."""
        self.records += 1
        before, after = native.plain(written), native.plain(read) if read is not None else {}
        self.fields.update(set(_differences(before, after)))


def _differences(before: Row, after: Row) -> Iterator[str]:
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if name == "criteria" and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for one, other in zip(old, new, strict=True):
                yield from (f"criteria[].{key}" for key in one.keys() | other.keys() if one.get(key) != other.get(key))
        elif old != new:
            yield name


def writable() -> list[str]:
    """Return the names of the formats that can be written."""
    return [name for name, one in FORMATS.items() if one.dump is not None]


def rows(records: Iterable[Record], format: str, losses: Losses) -> Iterator[Row]:
    """Yield the rows of the records in a format, and count in ``losses`` what it does not carry.

    Raises:
        InvalidError: the format does not exist or cannot be written, or cannot carry a record at all.
    """
    chosen = FORMATS.get(format)
    if chosen is None or chosen.dump is None:
        what = "cannot be written" if chosen else "does not exist"
        message, hint = f"the format {format!r} {what}", f"choose one of {', '.join(writable())}"
        raise InvalidError(message, hint=hint, path="format")
    for record in records:
        try:
            written = list(chosen.dump(record))
            losses.add(record, _read_back(written, chosen, record, format))
        except InvalidError as error:
            raise InvalidError(f"{record.name or 'a record'}: {error}", hint=error.hint, path=error.path) from error
        yield from written


def _read_back(written: list[Row], chosen: Format, record: Record, name: str) -> Record | None:
    """Return the record that will be read from its rows."""
    errors = FileErrors()
    file = InputFile(f"{record.name or name}{_ENDINGS.get(chosen.kind, '.jsonl')}", errors=errors)
    given = (json.loads(strict_json.dump(row)) for row in written)
    if chosen.kind == "csv":
        given = ({key: str(neutralized(cell)) for key, cell in row.items() if str(cell).strip()} for row in given)
    entries = (
        Entry(row, Location(name, number), file.path.stem, number, is_csv=chosen.kind == "csv")
        for number, row in enumerate(given, start=1)
    )
    file.replace_entries(entries)
    try:
        read = next(iter(chosen.read(file)), None)
        if read is not None and read.rubric is not None:
            errors.add(*rubric_errors(read.rubric, read.location, None))
        errors.raise_if_any()
    except InvalidFileError as error:
        first = error.errors[0]
        message = f"{name} cannot carry it: {': '.join(filter(None, (first.path, first.message)))}"
        raise InvalidError(message, hint="choose another format", path=first.path) from error
    return read


def container_of(format: str, out: Path | None) -> str:
    """Return how rows of a format are written: by the ending of the file, else as the format is written.

    Raises:
        InvalidError: the format is not written to such a file.
    """
    kind = FORMATS[format].kind if format in FORMATS else "json"
    default = "jsonl" if kind == "json" else kind
    ending = out.suffix.lower() if out is not None else ""
    container = CONTAINERS.get(ending, default)
    known = ("jsonl", "json", "parquet") + ("yaml",) * (format == "native") if kind == "json" else (kind,)
    if container not in known or (ending and ending not in CONTAINERS and kind == "json"):
        endings = [one for one, name in CONTAINERS.items() if name in known]
        message = f"{format} is not written to a file that ends in {ending!r}"
        raise InvalidError(message, hint=f"name a file that ends in {', '.join(endings)}", path="out")
    return container


def dump(records: Iterable[Record], out: str | Path, format: str = "native") -> Losses:
    """Write records to a file, in the container of its ending; return what the format does not carry.

    Raises:
        InvalidError: the format cannot be written, cannot carry a record, or is not written to such a file.
    """
    path, losses = Path(out), Losses()
    container = container_of(format, path)
    if container == "parquet":
        write_parquet(rows(records, format, losses), path, format)
    else:
        with path.open("w", encoding="utf-8", newline="") as stream:
            write_text(rows(records, format, losses), stream, format, container)
    return losses


def write_text(rows: Iterable[Row], stream: TextIO, format: str, container: str) -> None:
    """Write rows as ``jsonl``, ``json``, ``yaml``, ``csv`` or ``toml``.

    Raises:
        InvalidError: there are several rows, and the container holds one.
    """
    if container == "csv":
        _write_csv(rows, stream, FORMATS[format])
    elif container == "toml":
        _write_toml(rows, stream, format)
    elif container == "json":
        first = True
        for row in rows:
            stream.write(("[\n" if first else ",\n") + strict_json.dump(row))
            first = False
        stream.write("[]\n" if first else "\n]\n")
    else:
        for row in rows:
            if container == "yaml":
                yaml_records.write(row, stream)
            else:
                stream.write(strict_json.dump(row) + "\n")


def _write_toml(rows: Iterable[Row], stream: TextIO, format: str) -> None:
    for number, row in enumerate(rows):
        if number:
            raise InvalidError(f"a file of {format} has one rubric", hint="name one rubric", path="rubrics")
        toml_records.write(row, stream)


def _write_csv(rows: Iterable[Row], stream: TextIO, chosen: Format) -> None:
    """Write a CSV; text that a spreadsheet would take for a formula gets a single quote before it.

    Columns that repeat are numbered in the rows, and are as many as the longest row has.
    """
    kept = list(rows)
    columns = [*chosen.columns, *dict.fromkeys(name for row in kept for name in row if name not in chosen.columns)]
    table = csv.writer(stream, lineterminator="\n")
    table.writerow([name.rstrip(" 0123456789") for name in columns])
    table.writerows([neutralized(row.get(name, "")) for name in columns] for row in kept)


def write_parquet(rows: Iterable[Row], path: Path, format: str, *, folder: bool = False) -> None:
    """Write a Parquet file, or a folder of them that ``datasets.load_dataset`` reads.

    Rows of other formats than the native one are written to a temporary file first, since their columns are known only
    after the last one.

    Raises:
        InvalidError: pyarrow is not installed, or a column has values of several types.
    """
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise InvalidError("pyarrow is not installed", hint="pip install 'rubricsvc[parquet]'") from None
    del pa
    with TemporaryFile("w+", encoding="utf-8") as kept:
        encode = parquet_records.encoded if format == "native" else _filled
        for row in rows:
            kept.write(strict_json.dump(encode(row)) + "\n")
        schema = parquet_records.native_schema() if format == "native" else parquet_records.schema_of(_pages(kept))
        if schema is None:
            raise InvalidError("there is nothing to write", hint="name stored rubrics", path="rubrics")
        pages = _pages(kept)
        if not folder:
            _write_file(pages, path, schema)
            return
        (path / "data").mkdir(parents=True)
        for number, page in enumerate(pages):
            shard = (page, *islice(pages, ROWS_PER_SHARD // parquet_records.ROWS - 1))
            _write_file(shard, path / "data" / f"train-{number:05}.parquet", schema)
        parquet_records.write_card(path, "Rubrics", f"rubrics export --format {format}")


def _filled(value: Any) -> Any:
    """Return a value without empty mappings, which Parquet has no type for."""
    if isinstance(value, dict):
        return {name: _filled(item) for name, item in value.items() if item != {}}
    return [_filled(item) for item in value] if isinstance(value, list) else value


def _pages(kept: TextIO) -> Iterator[list[Row]]:
    kept.seek(0)
    while page := [json.loads(line) for line in islice(kept, parquet_records.ROWS)]:
        yield page


def _write_file(pages: Iterable[list[Row]], path: Path, schema: Any) -> None:
    with parquet_records.writer(path, schema) as write:
        for page in pages:
            write(page)
