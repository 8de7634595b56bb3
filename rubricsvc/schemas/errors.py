"""Wire types of errors."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.schemas.base import Wire


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
