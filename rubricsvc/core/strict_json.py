"""JSON by its standard, in values that the database can store: no NaN, no duplicate keys, no NUL characters."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from typing import Any

from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import cut

_SUSPICIOUS = re.compile(r"\\u|[eE]\+?\d{3}|\d{300}")
"""Only text that has one of these can hold a character or a number that cannot be stored."""
_LARGEST = sys.float_info.max


class JsonError(ValueError):
    """Text that is not strict JSON.

    ``code`` is ``json_invalid``, ``duplicate_key``, or ``unstorable`` for a value that the database cannot store;
    ``path`` is its field. ``line`` and ``column`` count from 1; the column is None where only the line is known.
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


def parse(text: str) -> Any:
    """Return the plain data of a JSON text, or raise a JsonError if it is invalid or cannot be stored."""
    try:
        data = json.loads(text, object_pairs_hook=unique_keys, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        rest = text[error.pos : error.pos + 20].strip()
        message = f"{error.msg[:1].lower()}{error.msg[1:]}, found {rest!r}" if rest else "ends in the middle of a value"
        raise JsonError(message, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise JsonError("is nested too deep") from None
    except JsonError:
        raise
    except ValueError:  # the interpreter's limit on the digits of a number
        raise JsonError("a number is too large", "unstorable") from None
    if _SUSPICIOUS.search(text):
        check_storable(data)
    return data


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
        character = next((one for one in data if one == "\0" or "\ud800" <= one <= "\udfff"), None)
        if character is not None:
            what = "the character U+0000" if character == "\0" else f"half a surrogate pair (U+{ord(character):04X})"
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


def _reject_constant(name: str) -> Any:
    raise JsonError(f"{name} is not JSON; write a finite number, or null")
