"""TOML files: one document is one record. And the same written back, for the tables that formats need."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from rubricsvc.core.strict_json import JsonError, check_storable
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.formats.errors import Location, file_error
from rubricsvc.formats.json_records import Document

_AT = re.compile(r" \(at line (\d+), column (\d+)\)")
_HEADER = re.compile(r"\s*(\[\[?)\s*([A-Za-z0-9_-]+)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")


def read(text: str, file: str) -> Iterator[Document]:
    """Yield the document.

    Raises:
        InvalidFileError: it is not TOML, or has a value that cannot be stored.
    """
    try:
        data = json.loads(json.dumps(tomllib.loads(text)))  # dates are no values of a rubric
        check_storable(data)
    except tomllib.TOMLDecodeError as error:
        place = _AT.search(str(error))
        location = Location(file, int(place[1]), int(place[2])) if place else Location(file)
        hint = "quote texts; a text of several lines has three quotes at both ends"
        raise file_error(location, "toml_invalid", f"is not TOML: {_AT.sub('', str(error))}", hint) from None
    except (TypeError, RecursionError):
        raise file_error(Location(file), "toml_invalid", "has a date or a time, or is nested too deep") from None
    except (JsonError, ValueError) as error:
        raise file_error(Location(file), "unstorable", str(error)) from None
    yield data, Location(file, 1, positions=_positions(text, data)), []


def _positions(text: str, data: dict[str, Any]) -> dict[FieldPath, tuple[int, int]]:
    """Return the lines of tables and keys; none where texts of several lines look like tables."""
    positions: dict[FieldPath, tuple[int, int]] = {}
    table: FieldPath = ()
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            name = header[2]
            counts[name] = counts.get(name, 0) + 1
            table = (name, counts[name] - 1) if header[1] == "[[" else (name,)
            positions[table] = (number, 1)
        elif key := _KEY.match(line):
            positions.setdefault((*table, key[1]), (number, 1))
    lists = {name: len(value) for name, value in data.items() if isinstance(value, list)}
    return positions if all(counts.get(name, 0) == length for name, length in lists.items()) else {}
