"""A file that is read once, from its first byte to its last: as bytes, as text, and as records of plain data."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from rubricsvc.formats import json_records, yaml_records
from rubricsvc.formats.errors import FileErrors, Location, file_error
from rubricsvc.formats.json_records import Document

T = TypeVar("T")

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line of JSONL."""
MAX_TEXT = 256 * 1024 * 1024
"""Bytes of a file that is not JSONL."""
HEAD = 8192

_MAGIC = {
    b"\x1f\x8b": "gzip-compressed; unpack it first (gunzip)",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; unpack it first (unzstd)",
    b"PK\x03\x04": "a ZIP archive or spreadsheet; unpack it, or export it as JSONL",
    b"PAR1": "a Parquet file; convert it to JSONL first",
    b"SQLite format 3\x00": "a SQLite database; export it as JSONL",
    b"%PDF": "a PDF",
}


class InputFile:
    """A file to read, or a folder.

    Its records are YAML, JSON or JSONL by the ending of its name. With another ending they are JSONL if the first
    character is ``{``, else YAML.
    """

    def __init__(
        self, path: str | Path, *, stream: BinaryIO | None = None, name: str = "", errors: FileErrors | None = None
    ) -> None:
        """Prepare to read a file; it is opened when the first record is asked for.

        Args:
            path: the file. With a ``stream`` only its ending counts.
            stream: the file's bytes, already open.
            name: what messages call the file; the path by default.
            errors: the collection that errors are added to; an own one by default.
        """
        self.path = Path(path)
        self.name = name or str(path)
        self.errors = errors if errors is not None else FileErrors()
        self._stream = stream
        self._records: Iterator[Document] | None = None

    @property
    def location(self) -> Location:
        """The file as a whole."""
        return Location(self.name)

    @property
    def is_stream(self) -> bool:
        """Whether it is read from an open stream, so that ``path`` is only a name."""
        return self._stream is not None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return not self.is_stream and self.path.is_dir()

    def first(self) -> Any:
        """Return the data of the first record that can be read, without consuming it; None if there is none.

        Raises:
            InvalidFileError: as `records`.
        """
        records = self.records()
        first = next(records, None)
        self._records = records if first is None else chain((first,), records)
        return None if first is None else first[0]

    def records(self) -> Iterator[Document]:
        """Return the iterator over the records. There is one: each record is read once.

        A line that is not JSON is added to ``errors``.

        Raises:
            InvalidFileError: the file is missing, not readable, empty, not text in UTF-8, too large, or as a whole not
                YAML or JSON.
        """
        if self._records is None:
            self._records = self._read()
        return self._records

    def parse(self, parse: Callable[[Any, Location, FileErrors], T | None]) -> Iterator[T]:
        """Yield what ``parse`` makes of each record. Where it returns None, it has added an error.

        Raises:
            InvalidFileError: as `records`.
        """
        for data, location in self.records():
            parsed = parse(data, location, self.errors)
            if parsed is not None:
                yield parsed

    def _read(self) -> Iterator[Document]:
        suffix = self.path.suffix.lower()
        opened = self._open()
        with nullcontext(opened) if self.is_stream else opened as stream:  # the caller closes its stream
            if suffix in (".jsonl", ".ndjson") or (
                suffix not in (".yaml", ".yml", ".json") and stream.peek(HEAD).lstrip().startswith(b"{")
            ):
                yield from json_records.read_lines(_lines(stream), self.name, self.errors)
            elif suffix == ".json":
                yield from json_records.read_document(self._text(stream), self.name)
            else:
                yield from yaml_records.read(self._text(stream), self.name)

    def _open(self) -> io.BufferedReader[Any]:
        """Open the file, past a byte order mark."""
        try:
            stream = self.path.open("rb", buffering=HEAD) if self._stream is None else self._stream
        except FileNotFoundError:
            raise file_error(self.location, "not_found", "no such file", "check the path") from None
        except IsADirectoryError:
            raise file_error(self.location, "is_folder", "is a folder, expected a file", "name a file in it") from None
        except OSError as error:
            raise file_error(self.location, "not_readable", f"cannot be read: {error.strerror}") from error
        if not isinstance(stream, io.BufferedReader):
            stream = io.BufferedReader(cast(io.RawIOBase, stream), HEAD)
        try:
            head = stream.peek(HEAD)
            self._check_is_text(head)
            if head.startswith(codecs.BOM_UTF8):
                stream.read(len(codecs.BOM_UTF8))
        except BaseException:
            if not self.is_stream:
                stream.close()
            raise
        return stream

    def _check_is_text(self, head: bytes) -> None:
        for magic, what in _MAGIC.items():
            if head.startswith(magic):
                raise file_error(self.location, "not_text", f"is {what}")
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise file_error(self.location, "encoding", "is UTF-16, expected UTF-8", "save it as UTF-8")
        if b"\0" in head:
            raise file_error(self.location, "not_text", "is a binary file, expected text in UTF-8")
        if len(head) < HEAD and not head.removeprefix(codecs.BOM_UTF8).strip():
            raise file_error(self.location, "no_records", "is empty, expected at least one record")

    def _text(self, stream: BinaryIO) -> str:
        data = stream.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            hint = "write it as JSONL, one record on a line: that is read line by line"
            raise file_error(self.location, "too_large", f"is larger than {MAX_TEXT // 2**20} MiB", hint)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            location = Location(self.name, data.count(b"\n", 0, error.start) + 1)
            raise file_error(location, "encoding", json_records.not_utf8(error), "save the file as UTF-8") from None


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines; None for one that is longer than ``MAX_LINE``."""
    while line := stream.readline(MAX_LINE + 1):
        if len(line) <= MAX_LINE:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE)
        yield None
