"""Plain data into models: strictly (text is not a number), with an error for each field that is wrong."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricsvc.core.validation_messages import FieldPath, field_messages, unknown_field
from rubricsvc.formats.errors import FileErrors, Location

Model = TypeVar("Model", bound=BaseModel)
Text = Annotated[str, Field(min_length=1)]


class ForeignModel(BaseModel):
    """Base of the records of other projects' formats. Unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def build(model: type[Model], data: Any, location: Location, errors: FileErrors, path: FieldPath = ()) -> Model | None:
    """Return ``data`` as a ``model``, or None after adding its errors. ``path`` leads to ``data`` in its record."""
    if not isinstance(data, dict):
        errors.expected(location, "dict_type", "a mapping", data, path)
        return None
    try:
        return model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        for one in field_messages(error, model=model, data=data):
            message = "is nested too deep" if one.code == "json_invalid" else one.message  # we wrote this JSON
            errors.add(location, one.code, message, path + one.path)
        return None


def check_fields(data: dict[str, Any], allowed: tuple[str, ...], location: Location, errors: FileErrors) -> None:
    """Add an error for each field of a record that is not ``allowed``."""
    for name in data:
        if name not in allowed:
            errors.add(location, "extra_forbidden", unknown_field(name, allowed), (name,))
