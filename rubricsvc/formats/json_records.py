"""JSON and JSONL files: their records as plain data, with the line of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from rubricsvc.core.strict_json import JsonError, parse
from rubricsvc.formats.errors import FileErrors, Location, file_error

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line of JSONL."""

Document = tuple[Any, Location]
"""One record as plain data, and where it is."""

_GAP = re.compile(r"[\s,]*")


def read_lines(stream: BinaryIO, file: str, errors: FileErrors) -> Iterator[Document]:
    """Yield one record for each line that is not blank. A line that is not JSON is added to ``errors``.

    Raises:
        InvalidFileError: a line is too long.
    """
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), start=1):
        if len(line) > MAX_LINE:
            message = "line is too long; expected one record on a line"
            raise file_error(Location(file, number), "line_too_long", message)
        if not line.strip():
            continue
        try:
            yield parse(line.decode().rstrip()), Location(file, number)
        except UnicodeDecodeError as error:
            errors.add(Location(file, number).error("encoding", f"{not_utf8(error)}; save the file as UTF-8"))
        except JsonError as error:
            errors.add(Location(file, number, error.column).error(error.code, str(error), error.path))


def read_document(text: str, file: str) -> Iterator[Document]:
    """Yield the records of a JSON text: the items of a list, or the one value that it is.

    Raises:
        InvalidFileError: it is not JSON.
    """
    try:
        data = parse(text)
    except JsonError as error:
        raise file_error(Location(file, error.line, error.column), error.code, str(error)) from None
    start = len(text) - len(text.lstrip())
    if not isinstance(data, list):
        yield data, Location(file, 1 + text.count("\n", 0, start))
        return
    decoder, end, line = json.JSONDecoder(), start + 1, 1 + text.count("\n", 0, start)
    for item in data:  # decoded once more to learn where each ends
        start = _GAP.match(text, end).end()  # type: ignore[union-attr]  # it matches the empty text too
        line += text.count("\n", end, start)
        yield item, Location(file, line)
        end = decoder.raw_decode(text, start)[1]
        line += text.count("\n", start, end)


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return the message for bytes that are not UTF-8."""
    return f"byte 0x{error.object[error.start]:02x} is not UTF-8 text"
