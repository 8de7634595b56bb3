"""JSON as its standard has it: no NaN, no equal keys, no text that a database cannot keep. Errors say the mending."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from rubricsvc.formats.errors import Faults, Place, refuse
from rubricsvc.formats.source import MAX_LINE, Source, not_utf8

Document = tuple[Any, Place]
"""One record as plain data, and where it stands."""


class JsonError(ValueError):
    """``line`` counts from 0, within the text that was parsed."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def parse(text: str) -> Any:
    """Plain data.

    Raises:
        JsonError: it is not JSON; the message says what to change.
    """
    try:
        data = json.loads(
            text,
            object_pairs_hook=once,
            parse_constant=no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except json.JSONDecodeError as error:
        raise JsonError(_mending(text, error), error.lineno - 1) from None
    except RecursionError:
        raise JsonError("is nested too deep") from None
    if "\\u" in text:
        refuse_unkeepable(data)
    return data


def refuse_unkeepable(data: Any) -> None:
    """Raise JsonError for text that no UTF-8 file and no PostgreSQL text can hold."""
    if isinstance(data, str):
        if "\0" in data:
            raise JsonError("text holds a NUL character (\\u0000), which databases do not keep; remove it")
        try:
            data.encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(data[error.start]):04x}"
            raise JsonError(f"text holds half a surrogate pair ({half}), which is no character; remove it") from None
    elif isinstance(data, list):
        for item in data:
            refuse_unkeepable(item)
    elif isinstance(data, dict):
        for key, item in data.items():
            refuse_unkeepable(key)
            refuse_unkeepable(item)


def json_lines(source: Source, faults: Faults) -> Iterator[Document]:
    """One record a line; blank lines are passed over."""
    for number, line in source.lines():
        place = Place(source.name, number)
        if line is None:
            faults.add(place, f"line is longer than {MAX_LINE // 2**20} MiB; expected one record on a line")
            continue
        if not line.strip():
            continue
        try:
            data = parse(line.decode().rstrip())
        except UnicodeDecodeError as error:
            faults.add(place, f"{not_utf8(error)}; save the file as UTF-8")
        except JsonError as error:
            faults.add(place, str(error))
        else:
            yield data, place


def json_file(source: Source) -> Iterator[Document]:
    """A JSON file: one record, or a list of them."""
    text = source.text()
    try:
        data = parse(text)
    except JsonError as error:
        raise refuse(Place(source.name, error.line + 1), str(error)) from None
    if not isinstance(data, list):
        yield data, Place(source.name, 1 + text[: len(text) - len(text.lstrip())].count("\n"))
        return
    decoder, at, line = json.JSONDecoder(), text.index("[") + 1, 1 + text.count("\n", 0, text.index("["))
    for item in data:
        start = _GAP.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty text too
        line += text.count("\n", at, start)
        yield item, Place(source.name, line)
        end = decoder.raw_decode(text, start)[1]
        line += text.count("\n", start, end)
        at = end


_GAP = re.compile(r"[\s,]*")
_TRAILING_COMMA = re.compile(r",\s*[}\]]")
_COMMA_BEFORE = re.compile(r",\s*[}\]]\Z")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for ``json.loads``. Raises JsonError where a key stands in it twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise JsonError(f"key {repeated!r} stands twice in one object; keep one of them")
    return found


def no_constant(name: str) -> Any:
    """Refuses NaN and Infinity, for ``json.loads``: raises JsonError."""
    raise JsonError(f"{name} is no JSON number; write a finite number, or null where there is none")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"{text} is too large a number")
    return value


def _whole(text: str) -> int:
    if len(text) > 300:
        raise JsonError(f"a number of {len(text)} digits is too large")
    return int(text)


_MENDING = (
    (re.compile(r"'"), "text stands in single quotes; JSON wants double quotes"),
    (re.compile(r"None"), "None is Python, not JSON; write null"),
    (re.compile(r"True|False"), "True and False are Python, not JSON; write true and false"),
    (re.compile(r"\s*\Z"), "ends in the middle of a value; in JSONL each record stands whole on one line"),
    (re.compile(r"//|#|/\*"), "JSON has no comments; remove it"),
)


def _mending(text: str, error: json.JSONDecodeError) -> str:
    rest = text[error.pos :]
    if _TRAILING_COMMA.match(rest) or _COMMA_BEFORE.search(text[: error.pos][-200:] + rest[:1]):
        words = "a comma before the closing bracket; remove it"
    elif error.msg == "Extra data":
        words = "more than one value on the line; put each record on a line of its own"
    elif error.msg.startswith("Unterminated"):
        words = "a text has no closing quote; in JSONL each record stands whole on one line"
    else:
        known = (words for pattern, words in _MENDING if pattern.match(rest))
        words = next(known, f"{error.msg[0].lower()}{error.msg[1:]}, found {rest[:20].strip()!r}")
    return f"column {error.colno}: {words}"
