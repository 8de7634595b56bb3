"""A file that is read once, from its first byte to its last: as bytes, as text, and as records of plain data."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from pydantic import ValidationError

from rubricsvc.core.validation_messages import field_messages
from rubricsvc.formats import containers, yaml_records
from rubricsvc.formats.errors import FileErrors, InvalidFileError, Location, file_error
from rubricsvc.formats.record import Entry, RubricCheck

T = TypeVar("T")

MAX_TEXT = 256 * 1024 * 1024
"""Bytes of a file that is not JSONL."""
HEAD = 8192
MAX_YAML = 1_000_000
"""Keys and values of a YAML document; a node of it takes a kilobyte of memory."""
MAX_CRITERIA = 20_000
"""Criteria of one rubric."""
_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".yaml": "yaml", ".yml": "yaml"} | {
    ".csv": "csv",
    ".tsv": "csv",
    ".toml": "toml",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_COLLECTED = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json")


class InputFile:
    """A file to read, or a folder.

    Its records are YAML, JSON, JSONL or CSV by the ending of its name. With another ending they are JSONL if the first
    character is ``{`` (JSON if the line ends there), else YAML.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        stream: BinaryIO | None = None,
        name: str = "",
        errors: FileErrors | None = None,
        max_values: int | None = None,
        max_records: int | None = None,
    ) -> None:
        """Prepare to read a file; it is opened when the first record is asked for.

        With a ``stream``, which has its bytes, only the ending of ``path`` counts. Messages call it ``name``, by
        default its path. ``errors`` is shared where several files are read as one. A document, or a line of JSONL, may
        have ``max_values`` keys and values, and the file ``max_records`` records (JSONL: lines).
        """
        self.path = Path(path)
        self.name = name or str(path)
        self.location = Location(self.name)
        self.errors = errors if errors is not None else FileErrors()
        self.is_stream = stream is not None
        self.is_folder = stream is None and self.path.is_dir()
        self.check: RubricCheck | None = None
        self.max_values = max_values
        self.max_records = max_records
        self._stream = stream
        self._entries: Iterator[Entry] | None = None

    def first(self) -> Any:
        """Return the data of the first record that can be read, without consuming it; None if there is none."""
        entries = self.entries()
        for first in entries:
            self._entries = chain((first,), entries)
            return first.data
        return None

    def entries(self) -> Iterator[Entry]:
        """Return the iterator over the records. There is one: each record is read once.

        A line that is not JSON is added to ``errors``.
        """
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def replace_entries(self, entries: Iterator[Entry]) -> None:
        """Use these records as those of the file, which need not exist."""
        self._entries = entries

    def parse(self, parse: Callable[[Entry], Iterable[T]], entries: Iterable[Entry] | None = None) -> Iterator[T]:
        """Yield what ``parse`` makes of each valid record; the errors of the others are added to ``errors``.

        ``entries`` are records that were made of those of the file.
        """
        for entry in self._all_entries() if entries is None else entries:
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
            self.errors.add(*entry.errors)
            if not entry.errors:
                self.errors.add_notes(entry.notes)
                yield from parsed

    def _all_entries(self) -> Iterator[Entry]:
        try:
            yield from self.entries()
        except InvalidFileError as error:
            self.errors.add(*error.errors)
            self.errors.raise_if_any(error.hint)

    def _read(self) -> Iterator[Entry]:
        if self.is_folder:
            yield from self._read_folder()
            return
        stem, kind = self.path.stem, _KINDS.get(self.path.suffix.lower())
        opened = self._open()
        with nullcontext(opened) if self.is_stream else opened as stream:  # the caller closes its stream
            if kind not in ("parquet", "arrow"):
                self._begin(stream)
            if kind is None and (start := re.match(rb"\s*\{([ \r]*\n)?", stream.peek(HEAD))):
                kind = "json" if start[1] else "jsonl"
            if kind == "jsonl":
                self._check_lines(stream)
                documents = containers.read_lines(stream, self.name, self.errors, self.max_values)
            elif kind == "json":
                documents = containers.read_document(self._text(stream), self.name, self.errors, self.max_values)
            elif kind == "csv":
                documents = containers.read_csv(self._text(stream), self.name, self.max_values)
            elif kind == "toml":
                documents = containers.read_toml(self._text(stream), self.name)
            elif kind in ("parquet", "arrow"):
                documents = containers.read_parquet(cast(BinaryIO, stream), self.name, arrow=kind == "arrow")
            else:
                documents = yaml_records.read(self._text(stream), self.name, self.max_values or MAX_YAML)
            for number, (data, location, errors) in enumerate(documents, start=1):
                self._check_records(number)
                yield Entry(
                    data, location, stem if number == 1 else f"{stem}-{number}", number, errors, is_csv=kind == "csv"
                )

    def _read_folder(self) -> Iterator[Entry]:
        """Yield the records of the data files in a folder, such as one of Hugging Face's ``datasets``."""
        described = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}
        paths = sorted(path for path in self.path.rglob("*") if path.suffix.lower() in _COLLECTED and path.is_file())
        paths = [path for path in paths if path.name not in described and not path.name.startswith((".", "cache-"))]
        if not paths:
            hint = f"expected files that end in {', '.join(_COLLECTED)}"
            raise file_error(self.location, "is_folder", "is a folder without data files", hint)
        number = 0
        for path in paths:
            for entry in InputFile(path, errors=self.errors, max_values=self.max_values).entries():
                number += 1
                self._check_records(number)
                own = f"{self.path.name}-{number}" if len(paths) > 1 else entry.name
                yield replace(entry, name=own, number=number)

    def _check_lines(self, stream: io.BufferedReader[Any]) -> None:
        if self.max_records is not None:
            start = stream.tell()
            self._check_records(sum(1 for _ in islice(stream, self.max_records + 1)))
            stream.seek(start)

    def _check_records(self, count: int) -> None:
        if self.max_records is not None and count > self.max_records:
            message = f"has more than {self.max_records} records"
            raise file_error(self.location, "too_many_records", message, "split the file")

    def _open(self) -> io.BufferedReader[Any]:
        try:
            stream = self._stream or self.path.open("rb", buffering=HEAD)
        except OSError as error:
            code = {FileNotFoundError: "not_found", IsADirectoryError: "is_folder"}.get(type(error), "not_readable")
            hint = "check the path" if code != "is_folder" else "name a file in it"
            raise file_error(self.location, code, f"cannot be read: {error.strerror}", hint) from error
        if not isinstance(stream, io.BufferedReader):
            stream = io.BufferedReader(cast(io.RawIOBase, stream), HEAD)
        return stream

    def _begin(self, stream: io.BufferedReader[Any]) -> None:
        """Check that the file is text, and skip a byte order mark."""
        head = stream.peek(HEAD)
        if b"\0" in head:
            hint = "unpack it if it is compressed, convert it to JSONL, or save it as UTF-8"
            raise file_error(self.location, "not_text", "is binary or UTF-16, expected text in UTF-8", hint)
        if head.startswith(codecs.BOM_UTF8):
            stream.read(len(codecs.BOM_UTF8))

    def _text(self, stream: BinaryIO) -> str:
        data = stream.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            hint = "write it as JSONL, one record on a line: that is read line by line"
            raise file_error(self.location, "too_large", f"is larger than {MAX_TEXT // 2**20} MiB", hint)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            location = Location(self.name, data.count(b"\n", 0, error.start) + 1)
            raise file_error(location, "encoding", containers.not_utf8(error), "save the file as UTF-8") from None


def append_row(rows: list[Entry], row: Entry) -> None:
    """Append a row of CSV to those of its rubric."""
    if len(rows) >= MAX_CRITERIA:
        message = f"is one more row than the {MAX_CRITERIA} criteria that a rubric may have"
        raise file_error(row.location, "too_long", message, "split the rubric: give its rows names")
    rows.append(row)
