"""Canonical JSON and the SHA-256 digests made from it.

Equal values have equal bytes: sorted keys, no blanks, UTF-8. The unset fields of a model are left out, so that a field
added later, unset, does not change the digests of what is stored. Free JSON data (the arguments of a check, the item of
a prompt) is kept as it is: there ``null`` is a value like any other.
"""

import hashlib
import json
from typing import Any

_ATOMS = frozenset({str, int, float, bool, type(None)})


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:  # most values; digests are a third of the cost of an import
        return value
    if (names := getattr(kind, "__pydantic_fields__", None)) is not None:
        fields = value.__dict__
        return {name: _plain(field) for name in names if (field := fields[name]) is not None}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def canonical_json(value: Any) -> bytes:
    """Return the one byte string of ``value`` (a pydantic model or plain JSON data without NaN and infinities)."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", errors="surrogatepass")


def digest(*values: Any) -> str:
    """Return the SHA-256 (64 hex digits) of the canonical JSON of the values, in order."""
    return hashlib.sha256(canonical_json(list(values))).hexdigest()
