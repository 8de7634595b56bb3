"""Canonical JSON, the SHA-256 digests made from it, and the questions that they name.

Equal values have equal bytes: sorted keys, no blanks, UTF-8. The unset fields of a model are left out, so that a field
added later, unset, does not change the digests of what is stored. Free JSON data (the arguments of a check, the item of
a prompt) is kept as it is: there ``null`` is a value like any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class QuestionSet:
    """The question behind each criterion of one rubric version, as one judge is asked it.

    A question is named by its fingerprint: the SHA-256 of all that decides its answer besides prompt and completion.
    ``fingerprints`` are by criterion key, in the rubric's order. Two criteria may share a question.
    """

    fingerprints: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the keys and fingerprints, in order."""
        return digest(list(self.fingerprints.items()))

    def answered(self, known: Iterable[str]) -> frozenset[str]:
        """Return the criteria that need not be asked.

        They are the ``known`` ones, and those that share their question with one of these or with an earlier one.
        """
        keys = set(known)
        seen = {self.fingerprints[key] for key in keys}
        for key, fingerprint in self.fingerprints.items():
            if fingerprint in seen:
                keys.add(key)
            seen.add(fingerprint)
        return frozenset(keys)
