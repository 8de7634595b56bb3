"""How a command gets its options, the fields of a request model, and its service, here or at RUBRICSVC_URL."""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, isclass, signature
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import typer
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperOption

from rubricsvc import telemetry
from rubricsvc.cli.output import echo
from rubricsvc.errors import InvalidError
from rubricsvc.schemas.base import request
from rubricsvc.services.local import LocalService, open_database
from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    from rubricsvc.client import Client

Service: TypeAlias = "LocalService | Client"
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
        app.command(name, cls=_Command)(run)
        return function

    return decorate


class _Command(TyperCommand):
    """A command that refuses an option with one value that is given twice: the last would count, silently."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left."""
        given = self.make_parser(ctx).parse_args(args=list(args))[2]
        for one in given:
            if isinstance(one, TyperOption) and not one.multiple and not one.is_flag and given.count(one) > 1:
                raise InvalidError(f"{one.opts[0]} is given {given.count(one)} times", hint="give it once")
        return super().parse_args(ctx, args)


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


@contextmanager
def service(caller: str | None = None) -> Iterator[Service]:
    """Open the service, for as long as the block runs; ``caller`` acts, over HTTP the user of the API key."""
    if url := os.environ.get("RUBRICSVC_URL"):
        if caller is not None:
            raise InvalidError("the service knows a person by the API key", hint="leave out --by", path="by")
        from rubricsvc.client import Client

        with Client(url) as client:
            yield client
    else:
        with local_service(caller) as found:
            yield found


def require_database() -> None:
    """Raise an InvalidError if RUBRICSVC_URL is set: the command is about the database itself."""
    if os.environ.get("RUBRICSVC_URL"):
        hint = "run it on the service's machine, or unset RUBRICSVC_URL"
        raise InvalidError("this command needs the database, and RUBRICSVC_URL names a remote service", hint=hint)


@contextmanager
def local_service(caller: str | None = None) -> Iterator[LocalService]:
    """Open the service in this process, for a command that needs the database itself; see `require_database`.

    By default the user of the operating system acts.
    """
    require_database()
    if caller is not None and get_settings().require_approval == "four_eyes":
        raise InvalidError("with four eyes a person is the operating system's user", hint="leave out --by", path="by")
    telemetry.configure("WARNING", human=True)  # to stderr: stdout is for data
    with open_database(lambda name: echo(f"created the database {name}")) as db:
        if caller is None:
            from pwd import getpwuid  # not on Windows, where the client runs

            try:
                caller = getpwuid(os.geteuid()).pw_name  # not by LOGNAME, which anybody may set
            except KeyError:  # no such user, as in some containers
                caller = "unknown"
        yield LocalService(db, caller=caller, approval=get_settings().require_approval)
