"""Errors of the project. A failed verdict is not an error but a value, ``Verdict.failed``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

MAX_MESSAGE_CHARS = 4000  # a message may quote a whole file


def cut(text: str, max_chars: int) -> str:
    """Return ``text`` shortened to ``max_chars`` by leaving out its middle."""
    if len(text) <= max_chars:
        return text
    head = (max_chars - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (max_chars - 1 - head) :]}"


def counted(number: int, noun: str) -> str:
    """Return the number with the noun, in the plural unless it is one."""
    return f"{number} {noun}{'s' * (number != 1)}"


class RubricsvcError(Exception):
    """Base class. ``str()`` is the message, ``hint`` how to fix it, ``path`` where it is.

    ``code`` is stable, ``status`` the status of the response over HTTP. A subclass without a code has its parent's.
    """

    code = "error"
    status = 500
    by_code: ClassVar[dict[str, type["RubricsvcError"]]] = {}
    errors: Sequence[Any] = ()
    """Of a file: each with ``line``, ``column``, ``path``, ``code`` and ``message``."""

    def __init_subclass__(cls, *, code: str = "", status: int = 0) -> None:
        if code:
            cls.code, cls.status = code, status
            cls.by_code[code] = cls

    def __init__(self, message: str, *, hint: str = "", path: str = "") -> None:
        self.message = cut(message, MAX_MESSAGE_CHARS)
        super().__init__(self.message)
        self.hint = cut(hint, MAX_MESSAGE_CHARS)
        self.path = cut(path, 200)


class NotFoundError(RubricsvcError, LookupError, code="not_found", status=404):
    """An unknown prompt, rubric, completion, judge, job or key."""


class ConflictError(RubricsvcError, code="conflict", status=409):
    """A name or idempotency key that is taken, or a rubric that was edited meanwhile."""


class NotApprovedError(ConflictError, code="not_approved", status=409):
    """A rubric without an approved version, or a draft where drafts are not allowed."""


class InvalidError(RubricsvcError, ValueError, code="invalid", status=422):
    """Invalid input; ``path`` is the field."""


class FormatError(InvalidError, code="format", status=422):
    """An invalid file; ``path`` is file and line."""


class MalformedError(InvalidError, code="malformed", status=400):
    """A request that is not valid JSON."""


class TooLargeError(InvalidError, code="too_large", status=413):
    """A request body over the limit."""


class UnauthorizedError(RubricsvcError, code="unauthorized", status=401):
    """A missing, wrong, expired or revoked API key."""


class ForbiddenError(RubricsvcError, code="forbidden", status=403):
    """A cross-site request."""


_DATABASE_HINTS = {  # how to go on, by a part of the driver's message
    "database is locked": "another process has the write lock, such as an import; wait for it and try again",
    "disk is full": "free some space on the disk and try again",
    "readonly": "make its file and its folder writable to this user, or move it",
    "read-only": "give RUBRICSVC_DATABASE_URL the primary server, or try again when this one has taken over",
}


class UnavailableError(RubricsvcError, code="unavailable", status=503):
    """A database, broker, judge or model that does not respond."""

    @classmethod
    def of_database(cls, error: BaseException) -> "UnavailableError":
        """Return the error with the driver's first line, without the SQL and the link that SQLAlchemy adds."""
        message = str(getattr(error, "orig", None) or error).partition("\n")[0]
        hint = next((hint for part, hint in _DATABASE_HINTS.items() if part in message), "run `rubricsvc doctor`")
        return cls(f"the database does not answer: {message}", hint=hint)


@contextmanager
def at_path(path: str) -> Iterator[None]:
    """Put ``path`` before the path of an error that is raised within: of which field of a request it is."""
    try:
        yield
    except RubricsvcError as error:
        error.path = cut(".".join(filter(None, (path, error.path))), 200)
        raise


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Import packages of an extra within; one that is not installed is an UnavailableError."""
    try:
        yield
    except ModuleNotFoundError as error:
        hint = f"pip install 'rubricsvc[{name}]'"
        raise UnavailableError(f"the package {error.name!r} is not installed", hint=hint) from error
