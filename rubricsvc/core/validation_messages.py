"""Plain messages for pydantic's validation errors: the path of the field, what was expected and what was given."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from inspect import isclass
from itertools import islice
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from rubricsvc.errors import cut

FieldPath = tuple[str | int, ...]
"""The keys and indices from the root of the data to a field: ``("criteria", 2, "weight")``."""

_MAX_QUOTED = 60
_NEAR = 0.7  # similarity from which a name may be the misspelling of another: 'oops' and 'groups' have 0.6
MAX_ERRORS = 1000  # invalid fields of a value whose messages are read; pydantic makes them all at once


class FieldMessage(NamedTuple):
    """What is wrong with one field. ``code`` is pydantic's error type, such as ``missing`` or ``float_type``."""

    path: FieldPath
    message: str
    code: str

    def __str__(self) -> str:
        """Return the dotted path and the message."""
        return ": ".join(filter(None, (".".join(map(str, self.path)), self.message)))


def field_messages(
    errors: ValidationError | Iterable[Any],
    *,
    model: type[BaseModel] | None = None,
    data: Any = None,
    quoted: bool = True,
) -> list[FieldMessage]:
    """Return a message for each field that pydantic refused.

    With the ``model`` that was validated, unknown fields come with the ones that are allowed; with the ``data``, the
    names of union members are left out of the paths. Set ``quoted`` to False where a value may be a secret.
    """
    if isinstance(errors, ValidationError):
        if (count := errors.error_count()) > MAX_ERRORS:
            return [FieldMessage((), f"{count} fields are invalid, more than can be listed", "too_many_errors")]
        errors = errors.errors(include_url=False)
    # pydantic reports a list whose items are invalid as too short as well
    true = (one for one in errors if one["type"] != "too_short" or len(one["input"]) < one["ctx"]["min_length"])
    return [_field_message(detail, model, data, quoted) for detail in true]


def first_error(
    error: ValidationError, *, model: type[BaseModel] | None = None, quoted: bool = True
) -> tuple[str, str]:
    """Return the dotted path and the message of the first field that is wrong.

    An unknown field comes before others: it may be the misspelt name of one that is missing.
    """
    messages = field_messages(error, model=model, quoted=quoted)
    first = next((one for one in messages if one.code == "extra_forbidden"), messages[0])
    return ".".join(map(str, first.path)), first.message


def error_text(error: BaseException) -> str:
    """Return the message of an exception; of pydantic's, that of its first field, as ``field: message``."""
    return ": ".join(filter(None, first_error(error))) if isinstance(error, ValidationError) else str(error)


def describe(value: Any) -> str:
    """Describe a value of plain data in a few words, for "found …" in a message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return cut(f"a mapping with {', '.join(map(str, islice(value, 5))) or 'nothing'}", 200)
    if isinstance(value, str) and len(value) > 2 * _MAX_QUOTED:  # a megabyte is not quoted to show its ends
        value = value[:_MAX_QUOTED] + value[-_MAX_QUOTED:]
    return cut(repr(value), _MAX_QUOTED)


def closest(name: str, allowed: Iterable[str]) -> str:
    """Return the hint for a name that is not ``allowed``: the closest one that is, or all of them."""
    allowed = list(dict.fromkeys(allowed))
    begun = [one for one in allowed if name.startswith(one) or one.startswith(name)]
    close = begun or get_close_matches(name, allowed, n=1, cutoff=_NEAR)
    return f"did you mean {close[0]!r}?" if close else f"expected {', '.join(allowed) or 'none'}"


_TYPES = {"int": "an integer", "float": "a number", "finite": "a finite number", "string": "a text", "none": "null"}
_TYPES |= {"bool": "true or false", "path": "a path", **dict.fromkeys(("list", "tuple", "set", "frozen"), "a list")}
_TYPES |= dict.fromkeys(("dict", "model", "dataclass", "mapping"), "a mapping") | {"date": "a date as YYYY-MM-DD"}
_LIMITS = {
    **{
        "greater_than": "more than {gt}",
        "greater_than_equal": "at least {ge}",
        "too_short": "at least {min_length} items",
    },
    **{"less_than": "less than {lt}", "less_than_equal": "at most {le}", "too_long": "at most {max_length} items"},
    **{"string_too_short": "at least {min_length} characters", "string_too_long": "at most {max_length} characters"},
    **{"literal_error": "{expected}", "enum": "{expected}", "string_pattern_mismatch": "a text that matches {pattern}"},
}


def _field_message(detail: Any, model: type[BaseModel] | None, data: Any, quoted: bool) -> FieldMessage:
    code, value, loc, context = detail["type"], detail["input"], detail["loc"], detail.get("ctx", {})
    path: FieldPath = loc
    if data is not None:  # without the names of union members, which pydantic puts among the keys
        path, here = (), data
        for step in loc:
            with suppress(KeyError, IndexError, TypeError):
                here = here[step]
                path = (*path, step)
    match code:
        case "missing":
            return FieldMessage((*path, loc[-1]) if data is not None else path, "is missing", code)
        case "union_tag_not_found":
            return FieldMessage((*path, context["discriminator"].strip("'")), "is missing", code)
        case "extra_forbidden":
            models, allowed = [model] if model else [], dict[str, Any]()
            for step in loc:
                allowed = {f.alias or name: f.annotation for one in models for name, f in one.model_fields.items()}
                models = list(models_in(allowed.get(str(step)))) or models
            hint = f"; {closest(str(loc[-1]), allowed)}" if model else ""
            return FieldMessage(path, f"unknown field{hint}", code)
        case "union_tag_invalid":
            tag = context["discriminator"].strip("'")
            path, value, message = (*path, tag), value[tag], f"expected one of {context['expected_tags']}"
        case "value_error" | "assertion_error":
            message = str(context.get("error", detail["msg"]))
            quoted = quoted and isinstance(value, str | int | float) and str(value) not in message
        case _:
            numbers = {name: f"{one:g}" if isinstance(one, float) else one for name, one in context.items()}
            limit = _LIMITS[code].format(**numbers) if code in _LIMITS else _TYPES.get(code.split("_", maxsplit=1)[0])
            message = "expected " + re.sub(r"\b1 (item|character)s", r"1 \1", limit or "")
            if limit is None:  # as pydantic has it
                message = re.sub(r"^(Input|Value) should be ", "expected ", detail["msg"])
                message = message[:1].lower() + message[1:]
    advice = "; put it in quotes" if code == "string_type" and isinstance(value, int | float) else ""
    return FieldMessage(path, f"{message}, found {describe(value)}{advice}" if quoted else message, code)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type at any depth: ``tuple[Criterion, ...] | None`` has one."""
    if isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)
