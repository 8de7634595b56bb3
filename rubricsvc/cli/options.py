"""Commands whose options are the fields of a request model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from inspect import Parameter, isclass, signature
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rubricsvc.schemas.methods import request

_SCALARS = (bool, int, float, str)


def command(
    app: typer.Typer, name: str | None = None, *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to ``app`` as a command; a parameter that is a pydantic model becomes an option for each field.

    Name (`job_id` is ``--job``), type, bounds, default and help come from the field. Another parameter with the name of
    a field takes its place, for example as an argument. Fields that no option can hold, such as models, and those of
    ``without`` keep their default; a required one must be a parameter. An invalid value is an InvalidError with the
    name of the option.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        given = {one.name: one.replace(annotation=hints[one.name]) for one in signature(function).parameters.values()}
        kinds = {key: one.annotation for key, one in given.items() if isclass(one.annotation)}
        models = {key: kind for key, kind in kinds.items() if issubclass(kind, BaseModel)}
        parameters = {key: one for key, one in given.items() if key not in models}
        for model in models.values():
            own = {key: field for key, field in model.model_fields.items() if key not in (*parameters, *without)}
            options = {key: _option(key, field) for key, field in own.items()}
            parameters |= {key: one for key, one in options.items() if one is not None}

        @wraps(function)
        def run(**values: Any) -> None:
            arguments = {key: values[key] for key in values if key in given}
            for key, model in models.items():
                fields = {field: values[field] for field in model.model_fields if field in values}
                arguments[key] = request(model, **fields)
            function(**arguments)

        ordered = sorted(parameters.values(), key=lambda one: one.default is not Parameter.empty)
        keywords = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in ordered]
        run.__signature__ = signature(function).replace(parameters=keywords)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in keywords} | {"return": None}
        app.command(name)(run)
        return function

    return decorate


def _option(name: str, field: FieldInfo) -> Parameter | None:
    """Return the option of a field, or None if its type has none."""
    kind = _plain(field.annotation)
    if kind is None:
        if field.is_required():
            raise TypeError(f"field {name} is required, and no option can hold it: declare a parameter {name}")
        return None
    bounds = {
        key: getattr(one, attribute)
        for one in field.metadata
        for cls, attribute, key in ((Ge, "ge", "min"), (Gt, "gt", "min"), (Le, "le", "max"))
        if isinstance(one, cls) and kind in (int, float, int | None, float | None)
    }
    default = Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
    default = list(default) if isinstance(default, tuple) else default
    flag = f"--{name.removesuffix('_id').replace('_', '-')}"
    names = [flag if default is False else f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    option = typer.Option(*names, help=field.description, show_default=default not in (None, "", []), **bounds)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _plain(annotation: Any) -> Any:
    """Return the type that typer reads for a field's type: without constraints, ids or names as text."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if annotation in _SCALARS or get_origin(annotation) is Literal:
        return annotation
    if get_origin(annotation) in (Union, UnionType):
        kinds = {_plain(one) for one in get_args(annotation) if one is not type(None)}
        kind = str if kinds == {int, str} else kinds.pop() if len(kinds) == 1 else None
        return kind if kind is None or type(None) not in get_args(annotation) else kind | None
    if get_origin(annotation) in (tuple, list):
        item: Any = _plain(get_args(annotation)[0])
        return None if item is None else list[item]
    return None
