"""JSON and JSONL files: their records as plain data, with the line of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rubricsvc.core.strict_json import JsonError, parse
from rubricsvc.formats.errors import FileErrors, Location, file_error

Document = tuple[Any, Location]
"""One record as plain data, and where it is."""

_GAP = re.compile(r"[\s,]*")


def read_lines(lines: Iterable[bytes | None], file: str, errors: FileErrors) -> Iterator[Document]:
    """Yield one record for each line that is not blank. A line that is not JSON is added to ``errors``.

    Args:
        lines: the lines of the file; None for one that is too long.
        file: its name in messages.
        errors: where errors are added.
    """
    for number, line in enumerate(lines, start=1):
        location = Location(file, number)
        if line is None:
            errors.add(location, "line_too_long", "line is too long; expected one record on a line")
        elif line.strip():
            try:
                data = parse(line.decode().rstrip())
            except UnicodeDecodeError as error:
                errors.add(location, "encoding", f"{not_utf8(error)}; save the file as UTF-8")
            except JsonError as error:
                errors.add(Location(file, number, error.column), error.code, str(error), error.path)
            else:
                yield data, location


def read_document(text: str, file: str) -> Iterator[Document]:
    """Yield the records of a JSON text: the items of a list, or the one value that it is.

    Raises:
        InvalidFileError: it is not JSON.
    """
    try:
        data = parse(text)
    except JsonError as error:
        raise file_error(Location(file, error.line, error.column), error.code, str(error)) from None
    if not isinstance(data, list):
        yield data, Location(file, 1 + text[: len(text) - len(text.lstrip())].count("\n"))
        return
    decoder, end, line = json.JSONDecoder(), text.index("[") + 1, 1 + text.count("\n", 0, text.index("["))
    for item in data:  # decoded once more to learn where each ends
        start = _GAP.match(text, end).end()  # type: ignore[union-attr]  # it matches the empty text too
        line += text.count("\n", end, start)
        yield item, Location(file, line)
        end = decoder.raw_decode(text, start)[1]
        line += text.count("\n", start, end)


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return the message for bytes that are not UTF-8."""
    return f"byte 0x{error.object[error.start]:02x} is not UTF-8 text"
