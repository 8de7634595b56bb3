"""JSON and JSONL files: their records as plain data, with the line of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from rubricsvc.core.strict_json import JsonError, has_more_values, parse
from rubricsvc.formats.errors import FieldError, FileErrors, Location, file_error, too_many_values

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
