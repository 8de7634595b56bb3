"""Plain data into models: strictly (text is not a number), with an error for each field that is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricsvc.core.validation_messages import FieldPath, field_messages, unknown_field
from rubricsvc.formats.errors import FileErrors, Location
from rubricsvc.formats.input_file import InputFile

Model = TypeVar("Model", bound=BaseModel)
Text = Annotated[str, Field(min_length=1)]


class ForeignModel(BaseModel):
    """Base of the records of other projects' formats. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def build(
    model: type[Model],
    data: Any,
    location: Location,
    errors: FileErrors,
    path: FieldPath = (),
    *,
    names: Mapping[Any, str] | None = None,
) -> Model | None:
    """Return ``data`` as a ``model``, or None after adding its errors.

    ``path`` leads to ``data`` in its record; ``names`` has the names that fields of the model have in the file.
    """
    if not isinstance(data, dict):
        errors.expected(location, "dict_type", "a mapping", data, path)
        return None
    try:
        return model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        for one in field_messages(error, model=model, data=data):
            message = "is nested too deep" if one.code == "json_invalid" else one.message  # we wrote this JSON
            first = ((names or {}).get(step, step) for step in one.path[:1])
            errors.add(location, one.code, message, (*path, *first, *one.path[1:]))
        return None


def rows(model: type[Model], file: InputFile) -> Iterator[tuple[Model, Location]]:
    """Yield the valid records of a file as ``model``; errors are added to ``file.errors``."""
    for data, location in file.records():
        row = build(model, data, location, file.errors)
        if row is not None:
            yield row, location


def check_fields(data: dict[str, Any], allowed: tuple[str, ...], location: Location, errors: FileErrors) -> None:
    """Add an error for each field of a record that is not ``allowed``."""
    for name in data:
        if name not in allowed:
            errors.add(location, "extra_forbidden", unknown_field(name, allowed), (name,))
