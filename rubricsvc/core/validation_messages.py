"""Plain messages for pydantic's validation errors: the path of the field, what was expected and what was given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import isclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rubricsvc.errors import cut

FieldPath = tuple[str | int, ...]
"""The keys and indices from the root of the data to a field: ``("criteria", 2, "weight")``."""

_EXPECTED = {
    "string_type": "text",
    "float_type": "a number",
    "float_parsing": "a number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_too_short": "some text",
    "string_too_long": "at most {max_length} characters",
    "finite_number": "a finite number",
    "too_short": "a list of at least {min_length}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number at most {le}",
}
_MAX_QUOTED = 60


@dataclass(frozen=True, slots=True)
class FieldMessage:
    """What is wrong with one field. ``code`` is pydantic's error type, such as ``missing`` or ``float_type``."""

    path: FieldPath
    message: str
    code: str


def field_messages(
    errors: ValidationError | Iterable[Any],
    *,
    model: type[BaseModel] | None = None,
    data: Any = None,
    quoted: bool = True,
) -> list[FieldMessage]:
    """Return a message for each field that pydantic refused.

    Args:
        errors: the exception, or its ``errors()``.
        model: the model that was validated; with it, unknown fields and tags come with the ones that are allowed.
        data: the value that was validated; with it, the names of union members are left out of the paths.
        quoted: whether the messages quote the values. Set to False where a value may be a secret.
    """
    details = errors.errors(include_url=False) if isinstance(errors, ValidationError) else errors
    return [
        _field_message(detail, model, data, quoted)
        for detail in details
        # pydantic reports a list whose items are invalid as too short as well
        if detail["type"] != "too_short" or len(detail["input"]) < detail["ctx"]["min_length"]
    ]


def first_error(
    error: ValidationError, *, model: type[BaseModel] | None = None, quoted: bool = True
) -> tuple[str, str]:
    """Return the dotted path and the message of the first field that is wrong.

    An unknown field comes before others: it may be the misspelt name of one that is missing.
    """
    messages = field_messages(error, model=model, quoted=quoted)
    first = next((one for one in messages if one.code == "extra_forbidden"), messages[0])
    return ".".join(map(str, first.path)), first.message


def describe(value: Any) -> str:
    """Describe a value of plain data in a few words, for "found …" in a message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(cut(value, _MAX_QUOTED)) if value else "an empty text"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return cut(f"a mapping with {', '.join(map(str, list(value)[:5]))}", 200) if value else "an empty mapping"
    return cut(repr(value), _MAX_QUOTED)


def unknown_field(name: str, allowed: Iterable[str] | None = None) -> str:
    """Return the message for a field that is not ``allowed``, with the closest one that is."""
    if allowed is None:
        return "unknown field"
    allowed = list(allowed)
    close = get_close_matches(name, allowed, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"expected {', '.join(allowed) or 'none'}"
    return f"unknown field; {hint}"


def _field_message(detail: Any, model: type[BaseModel] | None, data: Any, quoted: bool) -> FieldMessage:
    code, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    path = _path_in_data(detail, data)
    if code in ("union_tag_invalid", "union_tag_not_found") and model is not None:
        tag = context["discriminator"].strip("'")
        allowed = ", ".join(map(repr, _tags_at(model, detail["loc"], tag)))
        path, value, message = (*path, tag), value.get(tag), f"expected {allowed}"
    elif code == "missing":
        return FieldMessage(path, "is missing", code)
    elif code == "extra_forbidden":
        allowed_fields = _fields_at(model, detail["loc"][:-1]) if model else None
        return FieldMessage(path, unknown_field(str(detail["loc"][-1]), allowed_fields), code)
    elif code in ("value_error", "assertion_error"):
        message = str(context.get("error", detail["msg"]))
        quoted = quoted and isinstance(value, str | int | float) and str(value) not in message
    elif code in _EXPECTED:
        limits = {name: _plain(limit) for name, limit in context.items()}
        message = f"expected {_EXPECTED[code].format_map(limits)}"
    else:
        message = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}"
    advice = "; put it in quotes" if code == "string_type" and isinstance(value, int | float) else ""
    return FieldMessage(path, f"{message}, found {describe(value)}{advice}" if quoted else message, code)


def _plain(limit: Any) -> Any:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _path_in_data(detail: Any, data: Any) -> FieldPath:
    """Return pydantic's ``loc`` without the names of union members, which it puts among the keys."""
    loc: FieldPath = detail["loc"]
    if data is None:
        return loc
    path: list[int | str] = []
    for step in loc:
        if isinstance(data, dict) and step in data:
            data = data[str(step)]
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            continue
        path.append(step)
    return (*path, loc[-1]) if detail["type"] == "missing" else tuple(path)


def _fields_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """Return the names of the fields that are allowed at ``loc``, as files spell them."""
    return list(dict.fromkeys(name for one in _models_at(model, loc) for name in _fields(one)))


def _tags_at(model: type[BaseModel], loc: Sequence[int | str], field: str) -> list[str]:
    """Return the values of ``field`` that tell the models at ``loc`` apart."""
    return [tag for one in _models_at(model, loc) for tag in get_args(_fields(one).get(field))]


def _models_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[type[BaseModel]]:
    models = [model]
    for step in loc:
        models = [inner for one in models for inner in _models_in(_fields(one).get(str(step)))] or models
    return models


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type at any depth: ``tuple[Criterion, ...] | None`` has one."""
    if isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
