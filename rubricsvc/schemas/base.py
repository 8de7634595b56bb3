"""What wire types share: base classes, references, pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

MAX_BATCH = 10_000


class Wire(BaseModel):
    """Base class: unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def of(cls, row: object, **fields: object) -> Self:
        """Return the attributes of a row or value, and ``fields``. A required field that is in neither is ``value``."""
        values: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if name not in fields and (hasattr(row, name) or field.is_required()):
                values[name] = getattr(row, name if hasattr(row, name) else "value")
        return cls.model_validate(values | fields, from_attributes=True)


def example(value: JsonDict) -> ConfigDict:
    """Return the configuration of a model with this example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class Stored(Wire):
    """Fields of every stored row."""

    id: int = Field(description="Id in the database.")
    created_at: datetime = Field(description="Time at which it was stored.")


class StoredIds(Wire):
    """Ids of the sent completions or labels, in order."""

    ids: tuple[int, ...] = Field(description="Ids, in the order of the request.")


Data = TypeVar("Data")


class Page(Wire, Generic[Data]):
    """A page of a list. Pass ``next`` as ``?after=`` to continue; it is null on the last page."""

    data: tuple[Data, ...] = Field(description="Rows.")
    next: int | None = Field(description="Pass it as after to continue; null on the last page.")

    @classmethod
    def cut(cls, rows: Sequence[Data], limit: int) -> Self:
        """Return a page of the first ``limit`` rows; a row more than that says that others follow."""
        last: Any = rows[limit - 1] if len(rows) > limit else None
        return cls(data=tuple(rows[:limit]), next=None if last is None else last.id)

    def __iter__(self) -> Iterator[Data]:  # type: ignore[override]  # pydantic's yields fields
        """Iterate over the rows of this page."""
        return iter(self.data)


class FileProblem(Wire):
    """One error in an imported file: where it is, a stable ``code``, and a message."""

    line: int | None = Field(description="Line in the file.")
    column: int | None = Field(description="Column in the line.")
    path: str = Field(description="The field, like criteria[2].weight; empty for a whole record or file.")
    code: str = Field(description="Stable code of the error.")
    message: str = Field(description="What is wrong.")


class Problem(Wire):
    """An error: stable ``code``, message, hint how to fix it, and path in the request."""

    code: str = Field(description="Stable code of the error.")
    message: str = Field(description="What is wrong.")
    hint: str = Field("", description="How to correct it.")
    path: str = Field("", description="The field of the request.")
    errors: tuple[FileProblem, ...] = Field((), description="Of an imported file: every error in it.")


class ErrorBody(Wire):
    """Body of an error response."""

    error: Problem = Field(description="The error.")


class Alive(Wire):
    """Health response."""

    status: Literal["ok"]


class Ready(Alive):
    """Readiness response."""

    workers: int = Field(description="Running workers. Without one jobs are accepted, and wait.")
