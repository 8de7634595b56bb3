"""A file that is read once, from its first byte to its last: YAML, JSON, JSONL, CSV, Excel or Parquet.

Each reader yields plain data with the line of each record, of YAML with the position of every field. YAML is 1.2 (core
schema): PyYAML's C parser builds the node tree, and this module turns nodes into data, since PyYAML's own constructor
speaks YAML 1.1, keeps the last of duplicate keys, and forgets positions. docs/adr/0015 says why it is not ruamel.yaml.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
import tomllib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain, islice, pairwise, repeat
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeVar, cast
from zipfile import ZipFile

import yaml
from pydantic import ValidationError

from rubricsvc.core.strict_json import JsonError, check_storable, has_more_values, json_of, parse
from rubricsvc.core.validation_messages import FieldPath, field_messages
from rubricsvc.formats.record import Entry, FileErrors, InvalidFileError, Location, RubricCheck, file_error
from rubricsvc.schemas.base import FileProblem

T = TypeVar("T")

MAX_LINE = 64 * 1024 * 1024  # bytes of one line of JSONL
MAX_TEXT = 256 * 1024 * 1024  # bytes of a file that is not JSONL
HEAD = 8192
MAX_YAML = 1_000_000  # keys and values of a YAML document; a node of it takes a kilobyte of memory
MAX_CELLS = 1_000_000  # of a sheet, which take a quarter of a minute
ROWS = 1000  # rows of Parquet that are in memory
_TOTALS = frozenset(("total", "total points", "sum", "summe", "gesamt", "insgesamt", "max points"))

Document = tuple[Any, Location, list[FileProblem]]  # one record as plain data, where it is, and its errors as a text


def _too_many_values(location: Location, most: int) -> InvalidFileError:
    return file_error(location, "too_many_values", f"has more than {most} keys and values", "split the file")


def read_lines(stream: BinaryIO, file: str, errors: FileErrors, max_values: int | None = None) -> Iterator[Document]:
    """Yield one record for each line that is not blank. A line that is not JSON is added to ``errors``.

    One that is too long, or has more than ``max_values`` keys and values, is an InvalidFileError.
    """
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
        if len(line) > MAX_LINE:
            message = "line is too long; expected one record on a line"
            raise file_error(Location(file, number), "line_too_long", message)
        if not line.strip():
            continue
        try:
            text = line.decode().rstrip()
            if max_values is not None and has_more_values(text, max_values):
                raise _too_many_values(Location(file, number), max_values)
            yield from _read_record(text, Location(file, number), errors)
        except UnicodeDecodeError as error:
            message = f"byte 0x{line[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
            errors.add(Location(file, number).error("encoding", message))


def _read_record(text: str, location: Location, errors: FileErrors) -> Iterator[Document]:
    """Yield the record in a JSON text; one that is not JSON is added to ``errors``."""
    try:
        yield parse(text), location, []
    except JsonError as error:
        known = Location(location.file, location.line, error.column).error(error.code, str(error), error.path)
        if error.code == "duplicate_key" and (data := json_of(text)) is not None:  # its fields can be validated
            yield data, location, [known]
        else:
            errors.add(known)


def read_document(text: str, file: str, errors: FileErrors, max_values: int | None = None) -> Iterator[Document]:
    """Yield the records of a JSON text: the items of a list, or the one value that it is.

    An item with a duplicate key or a value that cannot be stored is added to ``errors``.
    A text that is not JSON, or has more than ``max_values`` keys and values, is an InvalidFileError.
    """
    if max_values is not None and has_more_values(text, max_values):
        raise _too_many_values(Location(file), max_values)
    start = len(text) - len(text.lstrip())
    line = 1 + text.count("\n", 0, start)
    if not isinstance(data := json_of(text), list):
        try:
            yield parse(text), Location(file, line), []
        except JsonError as error:
            raise file_error(Location(file, error.line, error.column), error.code, str(error)) from None
        return
    decoder, end = json.JSONDecoder(), start + 1
    for _ in data:  # decoded once more to learn where each ends
        start = re.compile(r"[\s,]*").match(text, end).end()  # type: ignore[union-attr]  # it matches the empty text too
        line += text.count("\n", end, start)
        end = decoder.raw_decode(text, start)[1]
        yield from _read_record(text[start:end], Location(file, line), errors)
        line += text.count("\n", start, end)


def read_csv(text: str, file: str, max_values: int | None, columns: dict[str, str] | None) -> Iterator[Document]:
    """Yield a record for each row. Cells are separated by commas, or by semicolons or tabs if the first line has more.

    Columns without distinct names, or a row with more cells than there are columns, are an InvalidFileError.
    """
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # of the process; a completion may be long
    head = text.split("\n", 1)[0]
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), strict=True)
    begun = ((rows.line_num - sum(cell.count("\n") for cell in row), row) for row in rows)
    try:
        yield from _records(begun, file, max_values, columns)
    except csv.Error as error:
        hint = 'close each quote; write a quote in a quoted cell as ""'
        raise file_error(Location(file, rows.line_num), "csv", f"is not CSV: {error}", hint) from None


def _records(
    rows: Iterable[tuple[int, list[str]]], file: str, max_values: int | None, given: dict[str, str] | None
) -> Iterator[Document]:
    """Yield a record for each row with its line; errors are as of `read_csv`.

    The first row has the names. With ``given``, which gets these, columns are named as the formats have them.
    """
    columns: list[str] = []
    values = 0
    for line, row in rows:
        location = Location(file, line)
        values += len(row)
        if max_values is not None and values > max_values:
            raise _too_many_values(location, max_values)
        if not any(cell.strip() for cell in row):
            continue
        if not columns:
            columns = column_names(row) if given is not None else [name.strip() for name in row]
            if given is not None:
                given.update(zip(columns, row, strict=True))
            if len({*filter(None, columns)}) < sum(map(bool, columns)):
                raise file_error(location, "columns", "expected a distinct name for each column in the first line")
        elif any(cell.strip() for cell in row[len(columns) :]):
            hint = 'quote cells that hold the separator: "a, b"; the first row has the names, no title'
            raise file_error(location, "columns", f"has {len(row)} cells, and there are {len(columns)} columns", hint)
        else:
            kept = () if "messages" in columns else ("completion",)  # an empty one is an answer too
            record = {
                name: restored(cell) for name, cell in zip(columns, row, strict=False) if cell.strip() or name in kept
            }
            if "" in record:
                raise file_error(location, "columns", f"expected a name for the column of {record['']!r}")
            errors = list[FileProblem]()
            try:
                check_storable(record)
            except ValueError as error:
                errors = [location.error("unstorable", str(error))]
            yield record, location, errors


@cache
def _columns() -> dict[str, dict[str, str]]:
    """Return the columns of each kind of sheet by the names that people give them, folded."""
    path = Path(__file__).with_name("columns.yaml")
    ((kinds, *_),) = read_yaml(path.read_text(encoding="utf-8"), path.name)
    return {
        kind: {_folded(one): name for name, others in names.items() for one in (name, *others)}
        for kind, names in kinds.items()
    }


def _folded(name: str) -> str:
    return re.sub(r"[\W_]+", " ", re.sub(r"[(\[](points?|pts|punkte|\d+ ?[-–] ?\d+)\W*$", "", name.casefold())).strip()


def column_names(names: Sequence[str]) -> list[str]:
    """Return the names of a sheet's columns as the formats have them, of the kind of sheet that has most of them."""
    given = [name.strip() for name in names]
    meant = [{name: kind[_folded(name)] for name in given if _folded(name) in kind} for kind in _columns().values()]
    first = [next(iter(kind.values())) for kind in _columns().values()]
    of_kind = [names for names, column in zip(meant, first, strict=True) if column in names.values()]
    known, taken = max(of_kind, key=lambda names: len({*names.values()}), default={}), {*given}
    for place, name in enumerate(given):
        if (better := known.get(name, name)) not in taken:
            taken.add(better)
            given[place] = better
    return given


FORMULA = re.compile(r"'*\s*[=+\-@\t\r\n＝＋－＠]")
"""Beginnings that make a spreadsheet take a cell for a formula (OWASP, CSV injection), quoted or not."""


def neutralized(value: Any) -> Any:
    """Return a text behind a single quote if a spreadsheet could take it for a formula; other values as they are."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def restored(cell: str) -> str:
    """Return a text without the quote of `neutralized`; that before a hyphen is kept if another closes it: '-ed'."""
    return cell[1:] if re.match(r"'(?!-[^']*')", cell) and FORMULA.match(cell) else cell


def read_parquet(stream: BinaryIO, file: str) -> Iterator[Document]:
    """Yield a record for each row; nulls are left out. The line of a record is the number of its row."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError:
        hint = "pip install 'rubricsvc[parquet]'"
        raise file_error(Location(file), "not_readable", "pyarrow is not installed", hint) from None
    number = 0
    try:
        table = parquet.ParquetFile(stream)
        if len({*table.schema_arrow.names}) < len(table.schema_arrow.names):
            raise file_error(Location(file), "columns", "expected a distinct name for each column")
        for batch in table.iter_batches(batch_size=ROWS):
            for row in batch.to_pylist():
                number += 1
                location = Location(file, number)
                try:
                    data, errors = _without_nulls(row), list[FileProblem]()
                    check_storable(data)
                except (JsonError, TypeError, ValueError) as error:
                    data, errors = {}, [location.error("unstorable", str(error))]
                yield data, location, errors
    except InvalidFileError:  # a ValueError too
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise file_error(Location(file, number or None), "not_readable", f"is not Parquet: {error}") from None


def read_workbook(data: bytes, file: str, errors: FileErrors, most: int) -> list[list[str]]:
    """Return the rows of the first sheet of an Excel workbook, as texts; merged cells have the value of the first.

    A formula without a stored value, and more than ``most`` cells with the empty ones, are an InvalidFileError.
    """
    location = Location(file)
    try:
        from openpyxl import load_workbook
        from openpyxl.utils import range_boundaries
    except ModuleNotFoundError:
        hint = "pip install 'rubricsvc[excel]'"
        raise file_error(location, "not_readable", "openpyxl is not installed", hint) from None
    rows, unknown, cells = list[list[str]](), list[str](), 0
    try:
        with warnings.catch_warnings(), ZipFile(io.BytesIO(data)) as archive:
            warnings.simplefilter("ignore")  # of styles and extensions, which do not matter here
            if sum(one.file_size for one in archive.infolist()) > MAX_TEXT:
                raise ValueError(f"it is larger than {MAX_TEXT // 2**20} MiB when it is unpacked")
            # without the formulas, and with them, of which those without a value are found
            loaded = [load_workbook(io.BytesIO(data), read_only=True, data_only=flag) for flag in (True, False)]
            sheet, *others = [one for one in loaded[0].worksheets if one.sheet_state == "visible"]
            source, xml = loaded[1][sheet.title], archive.read(sheet._worksheet_path)
            for one in (sheet, source):
                one.reset_dimensions()  # which some programs write wrongly
            formulas = source.iter_rows() if re.search(rb"<(\w+:)?f[ />]", xml) else repeat(())
            for row, written in zip(sheet.iter_rows(), formulas, strict=False):
                if (cells := cells + len(row) + 1) > most:
                    raise _too_many_values(location, most)
                rows.append([_cell_text(cell.value) for cell in row])
                empty = [f for cell, f in zip(row, written, strict=False) if f.data_type == "f" and cell.value is None]
                empty += [cell for cell in row if cell.data_type == "e"]
                unknown += [f"{cell.coordinate}: {cell.value}" for cell in empty]
            ranges = re.findall(rb'mergeCell\s[^>]*?ref\s*=\s*["\']([A-Z0-9:]+)', xml)
            merged = [range_boundaries(one.decode()) for one in ranges]
            if sum((min(bottom, len(rows)) - top) * left for left, top, _, bottom in merged) > most:
                raise _too_many_values(location, most)
    except (InvalidFileError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - openpyxl and zipfile raise many kinds
        hint = "save it as .xlsx, without a password and not as .xls; unpack other ZIP files"
        raise file_error(location, "not_readable", f"is no Excel workbook: {error}", hint) from None
    hint = "open and save the file in a spreadsheet program"
    cells_at = re.finditer(rb'<(?:\w+:)?c\s[^>]*?\br\s*=\s*["\']([A-Z]+)(\d+)', xml)
    places = ((int(at[2]), len(at[1]), at[1]) for at in cells_at)
    if any(before >= after for before, after in pairwise(places)):  # openpyxl would lose those
        raise file_error(location, "shape", "has cells that are out of order", hint)
    if unknown:
        hint = f"{hint}, or replace formulas by their values"
        raise file_error(location, "shape", f"cells without a value: {', '.join(unknown[:8])}", hint)
    errors.add(notes=[location.error("ignored", f"sheet {one.title!r} is not read, only the first") for one in others])
    filled = 0
    for left, top, _, bottom in merged:
        value = "".join(rows[top - 1][left - 1 : left]) if top <= len(rows) else ""
        for row in rows[top:bottom] if value else ():
            row.extend([""] * (left - len(row)))
            row[left - 1] = value
            filled += 1
    note = location.error("filled", f"{filled} cells have the value of the merged cell that they are in")
    errors.add(notes=[note] if filled else [])
    return rows


def _cell_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"expected text, numbers, lists and mappings, found {type(value).__name__}")


MAX_DEPTH = 60
MAX_ALIASED = 100_000  # values that aliases may add to a document, counted as if they were written out

YAML_TAG = "tag:yaml.org,2002:"
SCALARS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
}
_VALUES: dict[str, Callable[[str], Any]] = {
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text) if len(text) < 1000 else math.inf,  # more digits cannot be stored either
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
}
_HINT = "quote a value that holds ': ' or ' #' or begins with one of [{&*!|>'\"%@`; indent with spaces"


class _YamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the base is chosen at run time
    yaml_implicit_resolvers: ClassVar[dict[str | None, Any]] = {}


for _name, _pattern in SCALARS.items():
    _YamlLoader.add_implicit_resolver(YAML_TAG + _name, re.compile(rf"(?:{_pattern.pattern})\Z"), None)


def read_yaml(text: str, file: str, max_values: int | None = None) -> Iterator[Document]:
    """Yield the records of all documents in the text; a document is one record or a list of them.

    Tags, duplicate keys and NaN are errors of their record.
    """
    depth = 0
    with suppress(yaml.YAMLError):  # it will be raised after the records before it
        # before nodes are composed: PyYAML composes them recursively, in C without a limit
        for count, event in enumerate(yaml.parse(text, _YamlLoader)):
            if max_values is not None and count > max_values:
                raise _too_many_values(Location(file, *_position(event.start_mark)), max_values)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                location = Location(file, *_position(event.start_mark))
                raise file_error(location, "too_deep", f"is nested deeper than {MAX_DEPTH}")
    try:
        for node in yaml.compose_all(text, _YamlLoader):
            builder = _YamlBuilder(file)
            several = isinstance(node, yaml.SequenceNode) and node.tag == YAML_TAG + "seq"
            items = [((n,), item) for n, item in enumerate(node.value)] if several else [((), node)]
            for root, item in items:
                data = builder.build(item, root)
                errors, builder.errors = builder.errors, []
                yield data, Location(file, *builder.positions[root], builder.positions, root), errors
    except yaml.MarkedYAMLError as error:
        location = Location(file, *_position(error.problem_mark or error.context_mark))
        raise file_error(location, "yaml_invalid", f"{error.problem or error.context}", _HINT) from None
    except yaml.reader.ReaderError as error:
        character = chr(error.character) if isinstance(error.character, int) else error.character
        location = Location(file, text.count("\n", 0, error.position) + 1)
        raise file_error(location, "yaml_invalid", f"character {character!r} is not allowed in YAML") from None


def _position(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


@dataclass
class _YamlBuilder:
    """Builds the data of one document, the ``positions`` of its fields, and the ``errors`` that do not stop it."""

    file: str
    positions: dict[FieldPath, tuple[int, int]] = field(default_factory=dict)
    errors: list[FileProblem] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)
    _aliased: int = 0

    def build(self, node: Any, path: FieldPath) -> Any:
        """Return the data of a node."""
        position = _position(node.start_mark)
        self.positions.setdefault(path, position)
        self._aliased += id(node) in self._seen
        self._seen.add(id(node))
        location = Location(self.file, *position)
        if self._aliased > MAX_ALIASED:
            raise file_error(location, "too_many_aliases", f"aliases add more than {MAX_ALIASED} values")
        if len(path) > MAX_DEPTH:  # without aliases `read_yaml` has excluded it
            message = f"aliases are nested deeper than {MAX_DEPTH}: probably a cycle, an alias within its own value"
            raise file_error(location, "recursive_alias", message)
        kind = node.tag.removeprefix(YAML_TAG)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, kind)
        if kind not in ("map", "seq"):
            self._add(node, "yaml_tag")
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, number)) for number, item in enumerate(node.value)]
        data: dict[str, Any] = {}
        for key_node, item in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add(key_node, "yaml_invalid", "a key must be text")
                continue
            key = self._scalar(key_node, "str")
            if key in data:
                message = f"duplicate key {key!r} in one mapping; keep one of them"
                self._add(key_node, "duplicate_key", message)
                continue
            self.positions[(*path, key)] = _position(key_node.start_mark)
            data[key] = self.build(item, (*path, key))
        return data

    def _scalar(self, node: Any, kind: str) -> Any:
        text = node.value
        if kind not in ("str", "!") and (kind not in SCALARS or not SCALARS[kind].fullmatch(text)):
            self._add(node, "yaml_tag")
            kind = "str"
        data = _VALUES[kind](text) if kind in _VALUES else text
        try:
            check_storable(data)
        except JsonError as error:
            self._add(node, error.code, f"{error}, found {text[:20]!r}")
            return "-" if isinstance(data, str) else 1  # a valid value, so that the field has one error
        return data

    def _add(self, node: Any, code: str, message: str = "") -> None:
        if code == "yaml_tag":
            tag = node.tag.replace(YAML_TAG, "!!")
            message = f"tag {tag} is not allowed; write plain text, numbers, lists and mappings"
        self.errors.append(Location(self.file, *_position(node.start_mark)).error(code, message))


_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_KINDS |= {".toml": "toml", ".csv": "csv", ".tsv": "csv", ".xlsx": "xlsx", ".xlsm": "xlsx", ".parquet": "parquet"}


@dataclass(eq=False)
class InputFile:
    """A file to read; it is opened when the first of its ``entries`` is asked for. Each is read once.

    Its records are YAML, JSON, JSONL, CSV or Excel by the ending of its name. With another ending they are JSONL if the
    first character is ``{`` (JSON if the line ends there), else YAML. A line that is not JSON is added to ``errors``,
    which are shared where several files are read as one.

    With a ``stream``, which has its bytes, only the ending of its path counts. Messages call it ``name``, by default
    its path. A document, or a line of JSONL, may have ``max_values`` keys and values, and the file ``max_records``
    records (JSONL: lines). ``check`` is called with each rubric. With ``given``, its records, it need not exist. A
    ``mapping`` is a mapping file, instead of a format. ``columns`` has the columns of a sheet, as the sheet names them.
    """

    at: InitVar[str | Path]
    stream: BinaryIO | None = None
    name: str = ""
    errors: FileErrors = field(default_factory=FileErrors)
    max_values: int | None = None
    max_records: int | None = None
    check: RubricCheck | None = None
    mapping: str | Path | None = None
    given: InitVar[Iterator[Entry] | None] = None

    def __post_init__(self, at: str | Path, given: Iterator[Entry] | None) -> None:
        self.path, self.name = Path(at), self.name or str(at)
        self.location = Location(self.name)
        self.columns: dict[str, str] = {}
        self.entries = self._read() if given is None else given

    def first(self) -> Any:
        """Return the data of the first record that can be read, without consuming it; None if there is none."""
        for first in self.entries:
            self.entries = chain((first,), self.entries)
            return first.data
        return None

    def parse(self, parse: Callable[[Entry], Iterable[T]], entries: Iterable[Entry] | None = None) -> Iterator[T]:
        """Yield what ``parse`` makes of each valid record; the errors of the others are added to ``errors``.

        ``entries`` are records that were made of those of the file.
        """
        for entry in self.entries if entries is None else entries:
            parsed: list[T] = []
            entry.check = self.check
            try:
                if isinstance(entry.data, dict) or not entry.errors:
                    parsed = list(parse(entry))
            except InvalidFileError:
                pass  # of this record; the entry has the errors
            except ValidationError as error:  # of a value that was made of valid fields
                for one in field_messages(error):
                    entry.add(one.code, one.message, one.path)
            self.errors.add(*entry.errors, notes=() if entry.errors else entry.notes)
            if not entry.errors:
                yield from parsed

    def filled_down(self, entries: Iterable[Entry], by: Collection[str], more: Collection[str]) -> Iterator[Entry]:
        """Yield entries, rows with the columns ``by`` of the row above where these are blank, as in merged cells.

        A row with another value of one of them has its own. One that is filled has the columns ``more`` of it, too.
        """
        above, filled = dict[str, Any](), list[set[str]]()
        for entry in entries:
            if entry.is_csv:
                if str(entry.data.get("criterion")).strip(" :").casefold() in _TOTALS:
                    entry.add("ignored", "a total is no criterion: the row is not read", note=True)
                    self.errors.add(notes=entry.notes)
                    continue
                own, last = ({name: row[name] for name in by if name in row} for row in (entry.data, above))
                if own.items() < last.items():
                    filled.append(above.keys() - entry.data.keys())
                    entry.data = above | entry.data
                above = {name: entry.data[name] for name in (*by, *more) if name in entry.data}
            yield entry
        if filled:
            names = ", ".join(name for name in (*by, *more) if any(name in one for one in filled))
            message = f"rows with the {names} of the row above, as in merged cells: {len(filled)}"
            self.errors.add(notes=[self.location.error("filled", message)])

    def _read(self) -> Iterator[Entry]:
        """Yield the records; the error that ends the file is raised with those of the records before it."""
        try:
            stream = self.stream or self.path.open("rb", buffering=HEAD)
        except OSError as error:
            code = {FileNotFoundError: "not_found", IsADirectoryError: "is_folder"}.get(type(error), "not_readable")
            hint = "check the path" if code != "is_folder" else "name a file in it"
            self.errors.add(self.location.error(code, f"cannot be read: {error.strerror}"))
            self.errors.raise_if_any(hint)
        if not isinstance(stream, io.BufferedReader):
            stream = io.BufferedReader(cast(io.RawIOBase, stream), HEAD)
        try:
            with nullcontext() if self.stream is not None else stream:  # the caller closes its own
                for number, (data, location, errors) in enumerate(self._documents(stream), start=1):
                    self._check_records(number)
                    name = self.path.stem if number == 1 else f"{self.path.stem}-{number}"
                    is_csv = _KINDS.get(self.path.suffix.lower()) in ("csv", "xlsx")
                    yield Entry(data, location, name, number, errors, is_csv=is_csv)
        except InvalidFileError as error:
            self.errors.add(*error.errors)
            self.errors.raise_if_any(error.hint)

    def _documents(self, stream: io.BufferedReader[Any]) -> Iterator[Document]:
        """Return the documents in a stream of bytes, which is text in UTF-8 but for Parquet."""
        kind = _KINDS.get(self.path.suffix.lower())
        if kind == "parquet":
            return read_parquet(cast(BinaryIO, stream), self.name)
        head = stream.peek(HEAD)
        utf16 = kind != "jsonl" and head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        is_workbook = kind == "xlsx" or (kind in (None, "csv") and head.startswith(b"PK\3\4"))
        if b"\0" in head and not (utf16 or is_workbook):
            hint = "unpack it if it is compressed, convert it to JSONL, or save it as UTF-8 (.xls: as .xlsx)"
            raise file_error(self.location, "not_text", "is binary or UTF-16, expected text in UTF-8", hint)
        if head.startswith(codecs.BOM_UTF8):
            stream.read(len(codecs.BOM_UTF8))
        if kind is None and (start := re.match(rb"\s*\{([ \r]*\n)?", stream.peek(HEAD))):
            kind = "json" if start[1] else "jsonl"
        if kind == "jsonl":
            if self.max_records is not None:
                begin = stream.tell()
                self._check_records(sum(1 for _ in islice(stream, self.max_records + 1)))
                stream.seek(begin)
            return read_lines(stream, self.name, self.errors, self.max_values)
        data = stream.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            hint = "write it as JSONL, one record on a line: that is read line by line"
            raise file_error(self.location, "too_large", f"is larger than {MAX_TEXT // 2**20} MiB", hint)
        columns = self.columns if self.mapping is None else None
        if is_workbook:
            rows = read_workbook(data, self.name, self.errors, self.max_values or MAX_CELLS)
            return _records(enumerate(rows, start=1), self.name, self.max_values, columns)
        try:
            text = data.decode("utf-16" if utf16 else "utf-8")
        except UnicodeDecodeError as error:
            location = Location(self.name, data.count(b"\n", 0, error.start) + 1)
            message = f"byte 0x{data[error.start]:02x} is not UTF-8 text"
            raise file_error(location, "encoding", message, "save the file as UTF-8") from None
        if kind == "json":
            return read_document(text, self.name, self.errors, self.max_values)
        if kind == "toml":
            try:
                record = json.loads(json.dumps(tomllib.loads(text), default=str))  # dates as texts
                check_storable(record)
                return iter([(record, Location(self.name, 1), [])])
            except (ValueError, RecursionError) as error:
                raise file_error(self.location, "toml_invalid", f"is not TOML: {error}") from None
        if kind == "csv":
            return read_csv(text, self.name, self.max_values, columns)
        return read_yaml(text, self.name, self.max_values or MAX_YAML)

    def _check_records(self, count: int) -> None:
        if self.max_records is not None and count > self.max_records:
            message = f"has more than {self.max_records} records"
            raise file_error(self.location, "too_many_records", message, "split the file")
