"""The one base of every value in ``core``: frozen, strict about unknown fields, no I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import isclass
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rubricsvc.errors import cut

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

Details = TypeVar("Details", bound=Mapping[str, Any])
"""One of pydantic's errors, as its ``errors()`` has them."""


class Value(BaseModel):
    """An immutable value. Unknown fields are refused, so that a typing slip is an error and not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that carries nothing cached over: the digest of the original would name other content."""
        copy = super().model_copy(update=update, deep=deep)
        for name in copy.__dict__.keys() - type(self).model_fields.keys():
            del copy.__dict__[name]
        return copy


def first_fault(
    error: ValidationError, *, quoted: bool = True, model: type[BaseModel] | None = None
) -> tuple[str, str]:
    """The first field that is wrong, and in words what is expected there and, ``quoted``, what was found.

    With the ``model`` that refused it, a field that it does not have comes first: what it was meant for may be missing.
    """
    faults = error.errors(include_url=False)
    foreign = next((fault["loc"] for fault in faults if model and fault["type"] == "extra_forbidden"), None)
    if model is not None and foreign is not None:
        return ".".join(map(str, foreign)), unknown(str(foreign[-1]), fields_at(model, foreign[:-1]))
    first = faults[0]
    words = first["msg"].removeprefix("Value error, ")
    found = f", found {cut(repr(first['input']), 80)}" if quoted else ""
    return ".".join(map(str, first["loc"])), f"{words[:1].lower()}{words[1:]}{found}"


def without_echoes(errors: Iterable[Details]) -> list[Details]:
    """pydantic's errors but for its echoes: a list is told to be too short where it has the items, and some are bad."""
    return [one for one in errors if one["type"] != "too_short" or len(one["input"]) < one["ctx"]["min_length"]]


def unknown(name: str, known: Iterable[str]) -> str:
    """What to say of a field that is none of those ``known``."""
    known = list(known)
    near = get_close_matches(name, known, n=1)
    told = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(known) or 'none'}"
    return f"unknown field; {told}"


def fields_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The fields that may stand at a place in a model's data, as a file names them; ``loc`` as pydantic tells it."""
    return list(dict.fromkeys(name for one in _models_at(model, loc) for name in _fields(one)))


def tags_at(model: type[BaseModel], loc: Sequence[int | str], field: str) -> list[str]:
    """What ``field`` may say at a place that holds one of several models, which it tells apart."""
    return [tag for one in _models_at(model, loc) for tag in get_args(_fields(one).get(field))]


def _models_at(model: type[BaseModel], loc: Sequence[int | str]) -> list[type[BaseModel]]:
    models = [model]
    for step in loc:
        models = [inner for one in models for inner in _models(_fields(one).get(str(step)))] or models
    return models


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Those in a type, however deep: ``tuple[Criterion, ...] | None`` has one."""
    if isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
