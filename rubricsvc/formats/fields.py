"""Plain data into values: strict (a text is no number), and each fault with its field, what was expected and found."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from rubricsvc.core.base import fields_at, tags_at, unknown, without_echoes
from rubricsvc.formats.errors import Faults, Place, Steps, found

Model = TypeVar("Model", bound=BaseModel)


class Foreign(BaseModel):
    """Base for the records of other people's formats: what we do not know is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def build(
    model: type[Model], data: Any, place: Place, faults: Faults, steps: Steps = (), *, strict: bool = True
) -> Model | None:
    """``data`` as a ``model``; or None, with its faults added. ``steps`` lead to ``data`` within its record."""
    if not isinstance(data, dict):
        faults.add(place, f"expected a mapping, found {found(data)}", steps)
        return None
    try:
        return model.model_validate_json(json.dumps(data), strict=strict)
    except ValidationError as error:
        for detail in without_echoes(error.errors(include_url=False)):
            loc = _own_steps(detail, data)
            if told := _wrong_kind(detail, model):
                faults.add(place, told[1], (*steps, *loc, told[0]))
            else:
                faults.add(place, _words(detail, model), steps + loc)
        return None


def unknown_fields(data: dict[str, Any], known: tuple[str, ...], place: Place, faults: Faults, steps: Steps) -> None:
    """A fault for each field that is not ``known``."""
    for name in data:
        if name not in known:
            faults.add(place, unknown(name, known), (*steps, name))


def _own_steps(detail: ErrorDetails, data: Any) -> Steps:
    """The way to the fault, without the names of union members that pydantic puts among its steps."""
    steps: list[int | str] = []
    for step in detail["loc"]:
        if isinstance(data, dict) and step in data:
            data = data[str(step)]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            continue
        steps.append(step)
    return (*steps, detail["loc"][-1]) if detail["type"] == "missing" else tuple(steps)


_EXPECTED = {
    "string_type": "text",
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "some text",
    "string_too_long": "at most {max_length} characters",
    "finite_number": "a finite number",
    "too_short": "at least {min_length}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}
_COMPARED = {
    "greater_than": "above",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}


def _wrong_kind(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str] | None:
    """The field that tells kinds of values apart, and what is wrong with it; None where it is not at fault."""
    if detail["type"] not in ("union_tag_invalid", "union_tag_not_found"):
        return None
    field = detail["ctx"]["discriminator"].strip("'")
    expected = ", ".join(map(repr, tags_at(model, detail["loc"], field)))
    return field, f"expected {expected}, found {found(detail['input'].get(field))}"


def _words(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "json_invalid":
        return "is nested too deep"  # what `json` wrote is valid otherwise
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        return unknown(str(detail["loc"][-1]), fields_at(model, detail["loc"][:-1]))
    quotes = "; put it in quotes" if kind == "string_type" and isinstance(detail["input"], int | float) else ""
    return f"{_expected(kind, context, detail['msg'])}, found {found(detail['input'])}{quotes}"


def _expected(kind: str, context: dict[str, Any], otherwise: str) -> str:
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind].format_map(context)}"
    if kind in _COMPARED:
        return f"expected a number {_COMPARED[kind]} {next(iter(context.values())):g}"
    return otherwise[0].lower() + otherwise[1:]
