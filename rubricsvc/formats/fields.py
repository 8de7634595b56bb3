"""Plain data into values: strict (a text is no number), and each fault with its field, what was expected and found."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rubricsvc.core.validation_messages import describe, field_messages, unknown_field
from rubricsvc.formats.errors import Faults, Place, Steps

Model = TypeVar("Model", bound=BaseModel)


class Foreign(BaseModel):
    """Base for the records of other people's formats: what we do not know is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def build(
    model: type[Model], data: Any, place: Place, faults: Faults, steps: Steps = (), *, strict: bool = True
) -> Model | None:
    """``data`` as a ``model``; or None, with its faults added. ``steps`` lead to ``data`` within its record."""
    if not isinstance(data, dict):
        faults.add(place, f"expected a mapping, found {describe(data)}", steps)
        return None
    try:
        return model.model_validate_json(json.dumps(data), strict=strict)
    except ValidationError as error:
        for one in field_messages(error, model=model, data=data):
            message = "is nested too deep" if one.code == "json_invalid" else one.message  # we wrote this JSON
            faults.add(place, message, steps + one.path)
        return None


def unknown_fields(data: dict[str, Any], known: tuple[str, ...], place: Place, faults: Faults, steps: Steps) -> None:
    """A fault for each field that is not ``known``."""
    for name in data:
        if name not in known:
            faults.add(place, unknown_field(name, known), (*steps, name))
