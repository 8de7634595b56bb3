"""Errors of the project.

::

    RubricsvcError                 stable ``code``, HTTP ``status``, and a ``hint`` how to fix it
    ├── NotFoundError       404    unknown prompt, rubric, completion, judge, job or key
    ├── ConflictError       409    the name or idempotency key is taken
    ├── InvalidError        422    invalid input; ``path`` is the field
    │   ├── FormatError     422    invalid file; ``path`` is file and line
    │   ├── MalformedError  400    the request is not valid JSON
    │   └── TooLargeError   413    the request body exceeds the limit
    ├── UnauthorizedError   401    missing, wrong, expired or revoked API key
    ├── ForbiddenError      403    cross-site request
    └── UnavailableError    503    database, broker, judge or model unavailable

A failed verdict is not an error but a value, ``Verdict.failed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_MESSAGE_CHARS = 4000
"""A message may quote a whole file."""


def cut(text: str, max_chars: int) -> str:
    """Return ``text`` shortened to ``max_chars`` by leaving out its middle."""
    if len(text) <= max_chars:
        return text
    head = (max_chars - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (max_chars - 1 - head) :]}"


class RubricsvcError(Exception):
    """Base class. ``str()`` is the message, ``hint`` how to fix it, ``path`` where it is."""

    code = "error"
    status = 500

    def __init__(self, message: str, *, hint: str = "", path: str = "") -> None:
        self.message = cut(message, MAX_MESSAGE_CHARS)
        super().__init__(self.message)
        self.hint = cut(hint, MAX_MESSAGE_CHARS)
        self.path = cut(path, 200)


class NotFoundError(RubricsvcError, LookupError):
    """An unknown id or name."""

    code = "not_found"
    status = 404


class ConflictError(RubricsvcError):
    """A name or idempotency key that is taken."""

    code = "conflict"
    status = 409


class InvalidError(RubricsvcError, ValueError):
    """Invalid input."""

    code = "invalid"
    status = 422


class FormatError(InvalidError):
    """An invalid file. ``errors`` has each error with ``line``, ``column``, ``path``, ``code`` and ``message``."""

    code = "format"
    errors: Sequence[Any] = ()


class MalformedError(InvalidError):
    """A request that is not valid JSON."""

    code = "malformed"
    status = 400


class TooLargeError(InvalidError):
    """A request body over the limit."""

    code = "too_large"
    status = 413


class UnauthorizedError(RubricsvcError):
    """A missing or invalid API key."""

    code = "unauthorized"
    status = 401


class ForbiddenError(RubricsvcError):
    """A cross-site request."""

    code = "forbidden"
    status = 403


class UnavailableError(RubricsvcError):
    """A database, broker, judge or model that does not respond."""

    code = "unavailable"
    status = 503
