"""The one base of every value in ``core``: frozen, strict about unknown fields, no I/O."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_ID = 2**63 - 1
"""Of a row: the largest integer of both databases."""


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("must be printable: no line breaks and no control characters")
    return name


LONGEST_NAME = 200
"""Characters of a name, an id or a policy that the database keeps."""

Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Title = Annotated[Name, AfterValidator(_printable)]
"""A name that a person gives, and reads again in a terminal."""

UnitInterval = Annotated[float, Field(ge=0.0, le=1.0)]


class Value(BaseModel):
    """An immutable value. Unknown fields are refused, so that a typing slip is an error and not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that carries nothing cached over: the digest of the original would name other content."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy
