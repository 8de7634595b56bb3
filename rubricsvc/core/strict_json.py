"""JSON by its standard, in values that the database can store: no NaN, no duplicate keys, no NUL characters."""

import json
import math
import re
import sys
from collections import Counter
from typing import Any

from rubricsvc.core.base import UNSTORABLE
from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import cut

MAX_VALUES = 250_000
"""Keys and values that a document sent to the service may have: 10,000 completions or labels with all their fields."""
_LARGEST = sys.float_info.max
_MAX_DIGITS = 1000  # digits of a number that is decoded; more cannot be stored, and decoding takes their square

_SUSPICIOUS = re.compile(r"\\u|[0-9]{200}|[eE]\+?0*[1-9][0-9]{2}")
"""What a text has that the database cannot store: an escape, or a number that may be too large. Else values stand."""


class JsonError(ValueError):
    """Text that is not strict JSON.

    ``code`` is ``json_invalid``, ``duplicate_key``, ``too_many_values``, or ``unstorable`` for a value that the
    database cannot store; ``path`` is its field. ``line`` and ``column`` count from 1; the column is None where only
    the line is known.
    """

    def __init__(
        self,
        message: str,
        code: str = "json_invalid",
        *,
        line: int = 1,
        column: int | None = None,
        path: FieldPath = (),
    ) -> None:
        super().__init__(message)
        self.code, self.line, self.column, self.path = code, line, column, path


def parse(text: str, *, max_values: int | None = None) -> Any:
    """Return the plain data of a JSON text of up to ``max_values`` keys and values, counted before it is decoded.

    Raises:
        JsonError: the text is invalid, cannot be stored or has too many values.
    """
    if max_values is not None and has_more_values(text, max_values):
        raise JsonError(f"has more than {max_values} keys and values", "too_many_values")

    def reject_constant(name: str) -> Any:
        raise JsonError(f"{name} is not JSON; write a finite number, or null")

    try:
        data = json.loads(
            text,
            object_pairs_hook=unique_keys,
            parse_int=lambda digits: int(digits) if len(digits) <= _MAX_DIGITS else math.inf,
            parse_constant=reject_constant,
        )
        if _SUSPICIOUS.search(text):
            check_storable(data)
    except json.JSONDecodeError as error:
        rest = text[error.pos : error.pos + 20].strip()
        message = f"{error.msg[:1].lower()}{error.msg[1:]}, found {rest!r}" if rest else "ends in the middle of a value"
        raise JsonError(message, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise JsonError("is nested too deep") from None
    return data


def json_of(text: str) -> Any:
    """Return the data of a text that is JSON, if need be with NaN and duplicate keys; None for another text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def dump(data: Any) -> str:
    """Return plain data as a line of JSON; NaN and infinities are a ValueError."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def has_more_values(text: str, most: int) -> bool:
    """Return whether a JSON text has more than ``most`` keys and values, without decoding it."""
    unescaped = text.replace(r"\\", "").replace(r"\"", "")
    if unescaped.count('"') > 2 * most:
        return True
    return sum(map("".join(unescaped.split('"')[::2]).count, ",:[{")) > most  # those outside of strings


def check_storable(data: Any, path: FieldPath = ()) -> None:
    """Raise a JsonError with the ``path`` of the first text or number that the database cannot store."""
    if isinstance(data, dict):
        for key, item in data.items():
            check_storable(key, (*path, key))
            check_storable(item, (*path, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            check_storable(item, (*path, index))
    elif isinstance(data, str):
        if ("\0" in data or not data.isascii()) and (found := UNSTORABLE.search(data)) is not None:
            what = "the character U+0000" if found[0] == "\0" else f"half a surrogate pair (U+{ord(found[0]):04X})"
            raise JsonError(f"text holds {what}, which the database cannot store; remove it", "unstorable", path=path)
    elif isinstance(data, int | float) and not abs(data) <= _LARGEST:
        what = "NaN" if isinstance(data, float) and math.isnan(data) else "the number"
        raise JsonError(f"{what} is not finite or too large; write a finite number", "unstorable", path=path)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs, as an ``object_pairs_hook``; raise a JsonError if a key occurs twice."""
    data = dict(pairs)
    if len(data) < len(pairs):
        duplicate, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise JsonError(f"duplicate key {cut(repr(duplicate), 80)} in one object; keep one of them", "duplicate_key")
    return data
