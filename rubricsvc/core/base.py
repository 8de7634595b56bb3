"""The base class of every value in ``core``: frozen, strict about unknown fields, no I/O."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rubricsvc.core.fingerprint import digest

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""Characters that the database cannot store: U+0000 and halves of surrogate pairs."""


def storable(text: str) -> str:
    """Return ``text`` with U+FFFD in place of each character that the database cannot store."""
    return UNSTORABLE.sub("\ufffd", text)


MAX_ID = 2**63 - 1  # the largest row id; both databases have 64-bit integers


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("must be printable: no line breaks and no control characters")
    return name


def _encodable(text: str) -> str:
    if UNSTORABLE.search(text):
        raise ValueError("must be UTF-8 text without U+0000")
    return text


Text = Annotated[str, AfterValidator(_encodable)]  # text that the database can store

MAX_NAME_LENGTH = 200  # characters of a name, an external id or a policy in the database

Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
Title = Annotated[Name, AfterValidator(_printable)]  # a name that is shown in a terminal

UnitInterval = Annotated[float, Field(ge=0.0, le=1.0)]


class Value(BaseModel):
    """An immutable value. Unknown fields are errors, so that a misspelt field is never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy without cached properties: the original's digest would name other content."""
        copy = super().model_copy(update=update, deep=deep)
        fields = type(self).model_fields
        if len(copy.__dict__) > len(fields):
            for name in copy.__dict__.keys() - fields.keys():
                del copy.__dict__[name]
        return copy


class Content(Value):
    """A value that is named by its content."""

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content, 64 hex digits."""
        return digest(self)

    def __hash__(self) -> int:
        return hash(self.digest)
