"""A record of a file: as plain data (`Entry`), and as values (`Record`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rubricsvc.core.base import UnitInterval, Value
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric, level_value
from rubricsvc.core.validation_messages import FieldPath, describe, field_messages, unknown_field
from rubricsvc.errors import InvalidError
from rubricsvc.formats.errors import FieldError, InvalidFileError, Location

Model = TypeVar("Model", bound=BaseModel)
Row = dict[str, Any]
"""A line of JSONL, or a row of CSV, as plain data."""
Text = Annotated[str, Field(min_length=1)]
_CELL: TypeAdapter[float | None] = TypeAdapter(UnitInterval | None)

RubricCheck = Callable[[Rubric], None]
"""Raises InvalidError, with a ``path``, for a rubric with an unknown check or invalid arguments."""


class ForeignModel(BaseModel):
    """Base of the records of other projects' formats. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


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

    def note(self, code: str, message: str, path: FieldPath = ()) -> None:
        """Add a note on the field ``path``: the record is valid."""
        note = self.location.error(code, message, path)
        if note not in self.seen:
            self.seen.add(note)
            self.notes.append(note)

    def add(self, code: str, message: str, path: FieldPath = ()) -> None:
        """Add an error in the field ``path``."""
        error = self.location.error(code, message, path)
        if error not in self.seen:
            self.seen.add(error)
            self.errors.append(error)

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
                self.add("extra_forbidden", unknown_field(name, allowed), (name,))
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
