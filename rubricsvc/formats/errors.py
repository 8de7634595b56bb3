"""Errors in a file, collected with their positions and raised as one exception."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rubricsvc.core.validation_messages import FieldPath
from rubricsvc.errors import FormatError, cut

MAX_LISTED = 20
"""Errors in the message of an exception."""
MAX_KEPT = 1000
"""Errors of one file that are kept; more are only counted."""
_SKIP = "correct them; imports can leave the invalid records out with --skip-invalid (in Python: skip_invalid=True)"


@dataclass(frozen=True, slots=True)
class Location:
    """Where a record is in its file.

    ``positions`` (YAML) has the line and the column of each field by its path from the root of the document, and
    ``root`` is the path of the record. Lines and columns count from 1. ``origins`` has, for fields of a record that a
    mapping made, the paths in the file that they were made of.
    """

    file: str
    line: int | None = None
    column: int | None = None
    positions: Mapping[FieldPath, tuple[int, int]] = field(default_factory=dict)
    root: FieldPath = ()
    origins: Mapping[FieldPath, FieldPath] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the file and the line."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def error(self, code: str, message: str, path: FieldPath = ()) -> FieldError:
        """Return an error in a field, at its position or that of the closest field around it."""
        for length in range(len(path), 0, -1):
            if (origin := self.origins.get(path[:length])) is not None:
                path = (*origin, *path[length:])
                break
        full = self.root + path
        while full not in self.positions and len(full) > len(self.root):
            full = full[:-1]
        line, column = self.positions.get(full, (self.line, self.column))
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        return FieldError(self.file, line, column, cut(steps.removeprefix("."), 200), code, cut(message, 600))


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in a file. ``path`` is like ``criteria[2].weight``; empty for a whole record.

    ``code`` is stable: an error type of pydantic (``missing``, ``float_type``, …) or one of those in docs/formats.md.
    """

    file: str
    line: int | None
    column: int | None
    path: str
    code: str
    message: str

    @property
    def location(self) -> str:
        """``file``, ``file:line`` or ``file:line:column``."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.location, self.path, self.message)))


class InvalidFileError(FormatError):
    """The file has these ``errors``; nothing of it was used."""

    def __init__(self, errors: Sequence[FieldError], count: int | None = None, *, hint: str = _SKIP) -> None:
        lines = [str(error) for error in errors[:MAX_LISTED]]
        count = count or len(errors)
        if count > len(lines):
            lines.append(f"… and {count - len(lines)} more")
        head = f"{count} errors in {errors[0].file}:\n  " if count > 1 else ""
        super().__init__(head + "\n  ".join(lines), hint=hint, path=errors[0].location)
        self.errors = errors


class FileErrors:
    """The errors of one file, in the order of its lines. The first ``MAX_KEPT`` are kept, all are counted.

    ``invalid`` counts the records that have errors; ``notes`` say what
    was read in another way than it was written. After ``limit`` errors the file is not read any further.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self.errors: list[FieldError] = []
        self.notes: list[FieldError] = []
        self.note_count = 0
        self.count = self.invalid = 0

    def add(self, *errors: FieldError) -> None:
        """Add the errors of one record.

        Raises:
            InvalidFileError: the limit is exceeded.
        """
        self.count += len(errors)
        self.invalid += bool(errors)
        if kept := errors[: MAX_KEPT - len(self.errors)]:
            self.errors += kept
            self.errors.sort(key=lambda error: (error.file, error.line or 0, error.column or 0))
        if self.count > self.limit:
            self.raise_if_any("correct them first: the file was not read any further")

    def add_notes(self, notes: Sequence[FieldError]) -> None:
        """Add the notes of one valid record: the first ``MAX_KEPT`` are kept, all are counted."""
        self.note_count += len(notes)
        self.notes += notes[: MAX_KEPT - len(self.notes)]

    def raise_if_any(self, hint: str = _SKIP) -> None:
        """Raise InvalidFileError if there are errors."""
        if self.count:
            raise InvalidFileError(self.errors, self.count, hint=hint)


def file_error(location: Location, code: str, message: str, hint: str = "") -> InvalidFileError:
    """Return the exception for a file that cannot be read any further."""
    return InvalidFileError([location.error(code, message)], hint=hint)


def too_many_values(location: Location, most: int) -> InvalidFileError:
    """Return the exception for a document, or a line of JSONL, with more than ``most`` keys and values."""
    return file_error(location, "too_many_values", f"has more than {most} keys and values", "split the file")
