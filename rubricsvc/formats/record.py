"""A record of a file, as plain data (`Entry`) and as values (`Record`), and the errors in it, with their positions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from rubricsvc.core.base import UnitInterval, Value
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric, level_value
from rubricsvc.core.validation_messages import FieldPath, closest, describe, field_messages
from rubricsvc.core.verdict import Label
from rubricsvc.errors import FormatError, InvalidError, cut

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


@dataclass
class FileErrors:
    """The errors of one file, in the order of its lines. The first ``MAX_KEPT`` are kept, all are counted.

    ``invalid`` counts the records that have errors; ``notes`` say what was read in another way than it was written.
    After ``limit`` errors the file is not read any further.
    """

    limit: float = math.inf
    errors: list[FieldError] = field(default_factory=list)
    notes: list[FieldError] = field(default_factory=list)
    note_count: int = 0
    count: int = 0
    invalid: int = 0

    def add(self, *errors: FieldError, notes: Sequence[FieldError] = ()) -> None:
        """Add the errors of one record, or the notes of a valid one.

        Raises:
            InvalidFileError: the limit is exceeded.
        """
        self.note_count += len(notes)
        self.notes += notes[: MAX_KEPT - len(self.notes)]
        self.count += len(errors)
        self.invalid += bool(errors)
        if kept := errors[: MAX_KEPT - len(self.errors)]:
            self.errors += kept
            self.errors.sort(key=lambda error: (error.file, error.line or 0, error.column or 0))
        if self.count > self.limit:
            self.raise_if_any("correct them first: the file was not read any further")

    def raise_if_any(self, hint: str = _SKIP) -> None:
        """Raise InvalidFileError if there are errors."""
        if self.count:
            raise InvalidFileError(self.errors, self.count, hint=hint)


def file_error(location: Location, code: str, message: str, hint: str = "") -> InvalidFileError:
    """Return the exception for a file that cannot be read any further."""
    return InvalidFileError([location.error(code, message)], hint=hint)


Model = TypeVar("Model", bound=BaseModel)
Row = dict[str, Any]
"""A line of JSONL, or a row of CSV, as plain data."""
_CELL: TypeAdapter[float | None] = TypeAdapter(UnitInterval | None)

RubricCheck = Callable[[Rubric], None]
"""Raises InvalidError, with a ``path``, for a rubric with an unknown check or invalid arguments."""


MISSING: Any = object()
"""In place of a value that is not in a record. Null is missing too, but for a literal ``=null``."""


class Placed(dict[str, Any]):
    """A mapping that stands elsewhere in the file than its place in the prepared data says."""

    def __init__(self, fields: Mapping[str, Any], path: FieldPath) -> None:
        super().__init__(fields)
        self.path = path


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a record, and the path in the file that it is from; None for a literal."""

    value: Any
    path: FieldPath | None = None

    @classmethod
    def at(cls, value: Any, path: FieldPath) -> Node:
        """Return the node of a value that was found at a path."""
        return cls(MISSING if value is None else value, value.path if isinstance(value, Placed) else path)

    def items(self) -> list[Node]:
        """Return the items of a list, or the values of a mapping; none of another value."""
        pairs: Iterable[tuple[str | int, Any]] = ()
        if isinstance(self.value, dict):
            pairs = self.value.items()
        elif isinstance(self.value, list):
            pairs = enumerate(self.value)
        return [Node.at(value, (*(self.path or ()), step)) for step, value in pairs]


class GivenLabel(Value):
    """A label as it was written. With a ``level`` it has no value yet: the scale defines the value of its levels.

    A text that is no level may be any other value, as JSON: the cells of CSV are texts.
    """

    label: Label
    level: str | None = None

    def resolve(self, criterion: Criterion | None) -> Label:
        """Return the label with the value that its level has on the scale of the criterion."""
        if self.level is None:
            return self.label
        value: float | None
        try:
            value = level_value(criterion.scale if criterion else None, self.level)
        except InvalidError as unknown:
            try:
                value = _CELL.validate_json(self.level.strip().casefold())
            except ValueError:
                raise unknown from None
        return self.label.model_copy(update={"value": value})


@dataclass(frozen=True, slots=True)
class Record:
    """A prompt with its rubric, completions and labels.

    ``prompt`` is None where the rubric is for any prompt; ``rubric`` is None in a file of prompts and completions.
    ``labels`` are of the record's one completion. ``id`` is the id of the prompt in the file, ``name`` the name of the
    rubric, and ``location`` where the rubric is in the file. A record may name a stored rubric instead of having one
    (``rubric_ref``); its labels are ``given_labels`` then. ``text_only``: the format holds only the text of a prompt.
    """

    prompt: Prompt | None
    rubric: Rubric | None
    completions: tuple[Completion, ...] = ()
    labels: tuple[Label, ...] = ()
    id: str | None = None
    name: str = ""
    location: Location = field(default=Location(""), compare=False, repr=False)
    rubric_ref: int | str | None = None
    given_labels: tuple[GivenLabel, ...] = ()
    text_only: bool = False


@dataclass(slots=True)
class Entry:
    """One record of a file: its ``data``, where it is, and the ``errors`` in it.

    ``number`` counts the records of the file from 1; ``name`` is the stem of the file's name, with the number behind it
    from the second record on. In CSV all values are texts (``is_csv``). ``check`` is called with the rubric. ``notes``
    say what was read in another way than it was written; each error and note is ``seen`` once.
    """

    data: Any
    location: Location
    name: str = ""
    number: int = 1
    errors: list[FieldError] = field(default_factory=list)
    check: RubricCheck | None = None
    is_csv: bool = False
    notes: list[FieldError] = field(default_factory=list)
    seen: set[FieldError] = field(default_factory=set)

    def add(self, code: str, message: str, path: FieldPath = (), *, note: bool = False) -> None:
        """Add an error in the field ``path``; with ``note``, a note on it: the record is valid."""
        error = self.location.error(code, message, path)
        if error not in self.seen:
            self.seen.add(error)
            (self.notes if note else self.errors).append(error)

    def expected(self, code: str, what: str, value: Any, path: FieldPath = ()) -> None:
        """Add the error "expected ``what``, found ``value``"."""
        self.add(code, f"expected {what}, found {describe(value)}", path)

    def mapping(self, allowed: Collection[str]) -> dict[str, Any]:
        """Return the data, after adding an error for each field that is not ``allowed``."""
        if not isinstance(self.data, dict):
            self.expected("dict_type", "a mapping", self.data)
            raise InvalidFileError(self.errors)
        for name in self.data:
            if name not in allowed:
                self.add("extra_forbidden", f"unknown field; {closest(name, allowed)}", (name,))
        return self.data

    def build(
        self,
        model: type[Model],
        data: Any,
        path: FieldPath = (),
        *,
        nested: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Model:
        """Return ``data``, which is at ``path`` in the record, as a ``model``.

        ``nested`` has the fields of ``data`` whose own fields are in the record itself, with the names of these in the
        record where they differ.
        """
        try:
            return model.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as error:
            for one in field_messages(error, model=model, data=data):
                message = "is nested too deep" if one.code == "json_invalid" else one.message  # we wrote this JSON
                inner = one.path
                if inner and (names := (nested or {}).get(str(inner[0]))) is not None:
                    inner = (*(names.get(str(step), step) for step in inner[1:2]), *inner[2:])
                self.add(one.code, message, (*path, *inner))
            raise InvalidFileError(self.errors) from None
