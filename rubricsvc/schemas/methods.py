"""Methods that take a request model or its fields: ``jobs.page(JobFilters(limit=9))``, or ``jobs.page(limit=9)``.

Services and clients have the same ones, and make requests here, so that both raise the same errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from pydantic import ValidationError

from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError

S = TypeVar("S")
K = TypeVar("K")
R = TypeVar("R")
K_contra = TypeVar("K_contra", contravariant=True)
M_contra = TypeVar("M_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")
Made = TypeVar("Made")
Bound = TypeVar("Bound")


def request(model: Any, *args: Any, **fields: Any) -> Any:
    """Return the request that a caller gives: the model itself, or its fields, by name or in their order.

    A model with ``arguments`` takes some of its fields shorter from Python than over HTTP.

    Raises:
        InvalidError: A field is invalid; ``path`` is its name.
    """
    if len(args) == 1 and not fields and isinstance(args[0], model):
        return args[0]
    names = list(model.model_fields)
    if len(args) > len(names) or (unknown := [name for name in fields if name not in names]):
        raise TypeError(f"unexpected arguments: expected {', '.join(names)}, found {', '.join(unknown or 'more')}")
    given = dict(zip(names, args, strict=False)) | fields
    try:
        return model(**(model.arguments(**given) if hasattr(model, "arguments") else given))
    except ValidationError as error:
        path, message = first_error(error)
        raise InvalidError(f"{path}: {message}" if path else message, hint="correct the value", path=path) from None


class Method(Protocol[P, M_contra, R_co]):
    """A bound method that takes a request model, or its fields."""

    @overload
    def __call__(self, request: M_contra, /) -> R_co: ...
    @overload
    def __call__(self, *_: P.args, **fields: P.kwargs) -> R_co: ...


class MethodOf(Protocol[K_contra, P, M_contra, R_co]):
    """A bound method that takes an id or name, and a request model or its fields."""

    @overload
    def __call__(self, ref: K_contra, request: M_contra, /) -> R_co: ...
    @overload
    def __call__(self, ref: K_contra, /, *_: P.args, **fields: P.kwargs) -> R_co: ...


class Attribute(Generic[Bound]):
    """A descriptor whose value on an instance is a bound method; on the class it is the plain function."""

    def __init__(self, model: type[Any], function: Callable[..., Any]) -> None:
        self.model, self.function = model, function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object, owner: object = None) -> Bound:
        """Bind the method."""
        return self.function if instance is None else partial(self._call, instance)  # type: ignore[return-value]

    def _call(self, instance: object, *args: Any, **fields: Any) -> Any:
        refs = self.function.__code__.co_argcount - 2  # of its arguments one is the instance, the last one the model
        return self.function(instance, *args[:refs], request(self.model, *args[refs:], **fields))


class Takes(Protocol[P, Made]):
    """The decorator that `takes` returns."""

    @overload
    def __call__(self, function: Callable[[S, Made], R], /) -> Attribute[Method[P, Made, R]]: ...
    @overload
    def __call__(self, function: Callable[[S, K, Made], R], /) -> Attribute[MethodOf[K, P, Made, R]]: ...


def takes(model: Callable[P, Made]) -> Takes[P, Made]:
    """Let the last argument of a method, a ``model``, be given as a whole or by its fields."""
    return partial(Attribute, model)  # type: ignore[arg-type]
