"""A file as bytes and as text, and the plain refusals of what is no text."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rubricsvc.formats.errors import Place, refuse

MAX_LINE = 64 * 1024 * 1024
MAX_TEXT = 256 * 1024 * 1024

_MAGIC = {
    b"\x1f\x8b": "gzip-compressed; unpack it first (gunzip)",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; unpack it first (unzstd)",
    b"PK\x03\x04": "a ZIP archive or spreadsheet; unpack it, or export it as JSONL",
    b"PAR1": "a Parquet file; convert it to JSONL first",
    b"SQLite format 3\x00": "a SQLite database, not a file to import",
    b"%PDF": "a PDF",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read. ``name`` is what messages call it (``<stdin>`` lies in a temporary file), ``stem`` what
    a rubric in it is called that has no name."""

    path: Path
    name: str
    stem: str = "rubric"

    @classmethod
    def of(cls, path: str | Path) -> Source:
        return cls(Path(path), str(path), Path(path).stem)

    @property
    def place(self) -> Place:
        return Place(self.name)

    def open(self) -> BinaryIO:
        """The file's bytes, past a byte order mark.

        Raises:
            FormatError: it is not there, a directory, not readable, empty, or not text in UTF-8.
        """
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            raise refuse(self.place, "no such file", "check the path") from None
        except IsADirectoryError:
            raise refuse(self.place, "is a directory, expected a file", "name a file inside it") from None
        except OSError as error:
            raise refuse(self.place, f"cannot be read: {error.strerror}") from error
        try:
            self._refuse_what_is_no_text(stream.read(8192))
            stream.seek(3 if _starts_with_mark(stream) else 0)
        except BaseException:
            stream.close()
            raise
        return stream

    def _refuse_what_is_no_text(self, head: bytes) -> None:
        for magic, what in _MAGIC.items():
            if head.startswith(magic):
                raise refuse(self.place, f"is {what}")
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise refuse(self.place, "is UTF-16, expected UTF-8", "save it as UTF-8")
        if b"\0" in head:
            raise refuse(self.place, "is a binary file, expected text in UTF-8")
        if len(head) < 8192 and not head.removeprefix(codecs.BOM_UTF8).strip():
            raise refuse(self.place, "is empty, expected at least one record")

    def text(self) -> str:
        """The whole file as text.

        Raises:
            FormatError: as ``open``; or it is not UTF-8, or larger than ``MAX_TEXT``.
        """
        with self.open() as stream:
            data = stream.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            hint = "write it as JSONL, one record on a line: that is read line by line"
            raise refuse(self.place, f"is larger than {MAX_TEXT // 2**20} MiB", hint)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise refuse(Place(self.name, line), not_utf8(error), "save the file as UTF-8") from None

    def lines(self) -> Iterator[tuple[int, bytes | None]]:
        """Line numbers from 1, with the line; None for one that is longer than ``MAX_LINE``."""
        with self.open() as stream:
            number = 0
            while line := stream.readline(MAX_LINE + 1):
                number += 1
                if len(line) <= MAX_LINE:
                    yield number, line
                    continue
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE)
                yield number, None


def not_utf8(error: UnicodeDecodeError) -> str:
    return f"byte 0x{error.object[error.start]:02x} is not UTF-8 text"


def _starts_with_mark(stream: BinaryIO) -> bool:
    stream.seek(0)
    return stream.read(3) == codecs.BOM_UTF8
