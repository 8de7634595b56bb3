"""What wire types share: base classes, pages, errors, and methods that take a request or its fields; small nouns.

Services and clients have the same methods, ``jobs.page(JobFilters(limit=9))`` or ``jobs.page(limit=9)``, and make
requests here, so that both raise the same errors.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, cast, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.config import JsonDict

from rubricsvc.core.prompt import ignored_note
from rubricsvc.core.states import RubricState
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError
from rubricsvc.queries import MAX_LIMIT

MAX_BATCH = 10_000

log = logging.getLogger(__name__)


class Wire(BaseModel):
    """Base class: unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def of(cls, row: object, **fields: object) -> Self:
        """Return the attributes of a row or value, and ``fields``. A required field that is in neither is ``value``."""
        values: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if name not in fields and (hasattr(row, name) or field.is_required()):
                values[name] = getattr(row, name if hasattr(row, name) else "value")
        return cls.model_validate(values | fields, from_attributes=True)


def example(value: JsonDict) -> ConfigDict:
    """Return the configuration of a model with this example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class Stored(Wire):
    """Fields of every stored row."""

    id: int = Field(description="Id in the database.")
    created_at: datetime = Field(description="Time at which it was stored.")


class StoredIds(Wire):
    """Ids of the sent completions or labels, in order."""

    ids: tuple[int, ...] = Field(description="Ids, in the order of the request.")


Data = TypeVar("Data")
P = ParamSpec("P")

Batch = Annotated[tuple[Data, ...], Field(max_length=MAX_BATCH, fail_fast=True)]
"""Many values of a request. The first invalid one ends the validation."""


class Page(Wire, Generic[Data]):
    """A page of a list. Pass ``next`` as ``?after=`` to continue; it is null on the last page."""

    data: tuple[Data, ...] = Field(description="Rows.")
    next: int | None = Field(description="Pass it as after to continue; null on the last page.")

    @classmethod
    def cut(cls, rows: Sequence[Data], limit: int, by: str = "id") -> Self:
        """Return a page of the first ``limit`` rows, in the order of ``by``; a row more says that others follow."""
        last: Any = rows[limit - 1] if len(rows) > limit else None
        return cls(data=tuple(rows[:limit]), next=None if last is None else getattr(last, by))

    def __iter__(self) -> Iterator[Data]:  # type: ignore[override]  # pydantic's yields fields
        """Iterate over the rows of this page."""
        return iter(self.data)


def every_row(page: Callable[..., Page[Data]], *args: Any, **fields: Any) -> Iterator[Data]:
    """Yield the rows of all pages of a ``page`` method."""
    after: int | None = 0
    while after is not None:
        found = page(*args, **{"limit": MAX_LIMIT, **fields, "after": after})
        yield from found.data
        after = found.next


class FileProblem(Wire, frozen=True):
    """One error in a file: where it is, a stable ``code``, and a message."""

    file: str = Field("", description="Name of the file.")
    line: int | None = Field(description="Line in the file.")
    column: int | None = Field(description="Column in the line.")
    path: str = Field(description="The field, like criteria[2].weight; empty for a whole record or file.")
    code: str = Field(description="An error type of pydantic, such as missing, or one of docs/formats.md.")
    message: str = Field(description="What is wrong.")

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(filter(None, (place, self.path, self.message)))


class Problem(Wire):
    """An error: stable ``code``, message, hint how to fix it, and path in the request."""

    code: str = Field(description="Stable code of the error.")
    message: str = Field(description="What is wrong.")
    hint: str = Field("", description="How to correct it.")
    path: str = Field("", description="The field of the request.")
    errors: tuple[FileProblem, ...] = Field((), description="Of an imported file: every error in it.")


class Deletion(Wire):
    """What was deleted, or is to be."""

    rows: dict[str, int] = Field(description="Rows by table.")
    names: dict[str, list[str]] = Field({}, description="The first of them, as id and name.")
    may_quote: list[str] = Field([], description="Rubrics that stay, and that a model may have made of a completion.")
    erased: bool | None = Field(
        None,
        description="Whether no file of SQLite has the text any more; null of PostgreSQL, where vacuum removes it.",
    )


class ErrorBody(Wire):
    """Body of an error response."""

    error: Problem = Field(description="The error.")


class Alive(Wire):
    """Health response."""

    status: Literal["ok"]


class Ready(Alive):
    """Readiness response."""

    workers: int = Field(description="Running workers. Without one jobs are accepted, and wait.")


class ImportedFile(Wire):
    """What a file added. The ids are in the file's order, and include what existed before."""

    file: str = Field("", description="Name of the file.")
    new: dict[str, int] = Field({}, description="Rows that were added, by noun.")
    existing: dict[str, int] = Field({}, description="Rows that existed before, by noun.")
    replaced: dict[str, int] = Field({}, description="Rows that have another value now, by noun.")
    prompt_ids: list[int] = Field([], description="Ids of the prompts.")
    rubric_ids: list[int] = Field([], description="Ids of the rubric versions.")
    rubrics: list[str] = Field([], description="The rubrics as name@version.")
    new_rubrics: list[str] = Field([], description="Those that were added.")
    completion_ids: list[int] = Field([], description="Ids of the completions.")
    completion_rubric_ids: list[int | None] = Field([], description="Stored rubric that each record names, or null.")
    label_ids: list[int] = Field([], description="Ids of the labels.")
    omitted_labels: int = Field(0, description="Labels whose rubric or completion was not imported.")
    superseded: dict[str, int] = Field({}, description="Rubrics that exist as an earlier version, with the newest.")
    not_approved: dict[str, RubricState] = Field({}, description="Rubrics that are not approved, with their states.")
    draft_notes: dict[str, str] = Field({}, description="Why they are not approved, where that is known.")
    skipped: list[FileProblem] = Field([], description="Errors of the records that were skipped.")
    skipped_count: int = Field(0, description="Errors of the records that were skipped, listed or not.")
    notes: list[FileProblem] = Field([], description="What was read in another way than it was written.")
    note_count: int = Field(0, description="Notes, listed or not.")
    skipped_records: int = Field(0, description="Records that were skipped.")


class StoredKey(Stored):
    """An API key, without its secret."""

    name: str = Field(description="Name of the key's user.")
    suffix: str = Field(description="End of the secret.")
    last_used_at: datetime | None = Field(None, description="Time of the last use, to the minute.")
    expires_at: datetime | None = Field(None, description="Time at which it expires.")
    revoked_at: datetime | None = Field(None, description="Time at which it was revoked.")


class StoredWorker(Wire):
    """A worker that runs, or that was lost within the last hour."""

    name: str = Field(description="Name of the worker.")
    host: str = Field(description="Machine.")
    pid: int = Field(description="Process id.")
    status: Literal["running", "lost"] = Field(description="Lost if it missed several reports.")
    since: datetime = Field(description="Time at which it started.")
    last_seen: float = Field(description="Seconds since its last report.")


S = TypeVar("S")
K = TypeVar("K")
R = TypeVar("R")
K_contra = TypeVar("K_contra", contravariant=True)
M_contra = TypeVar("M_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
Made = TypeVar("Made")
Bound = TypeVar("Bound")


def request(model: Any, *args: Any, **fields: Any) -> Any:
    """Return the request that a caller gives: the model itself, or its fields, by name or in their order.

    A model with ``arguments`` takes some of its fields shorter from Python than over HTTP. An invalid field is an
    InvalidError at the ``path`` of its name.
    """
    if len(args) == 1 and not fields and isinstance(args[0], model):
        return args[0]
    names = list(model.model_fields)
    if len(args) > len(names) or (unknown := [name for name in fields if name not in names]):
        raise TypeError(f"unexpected arguments: expected {', '.join(names)}, found {', '.join(unknown or 'more')}")
    given, ignored = dict(zip(names, args, strict=False)) | fields, set[str]()
    given = model.arguments(**given) if hasattr(model, "arguments") else given
    try:
        made = model.model_validate(given, context=ignored)
    except ValidationError as error:
        path, message = first_error(error)
        raise InvalidError(f"{path}: {message}" if path else message, hint="correct the value", path=path) from None
    if ignored:
        log.warning(ignored_note(ignored))
    return made


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
        function: Any = self.function
        if instance is None:
            return cast("Bound", function)
        refs = function.__code__.co_argcount - 2  # of its arguments one is the instance, the last one the model
        made: Any = partial(request, self.model)
        return cast("Bound", lambda *args, **fields: function(instance, *args[:refs], made(*args[refs:], **fields)))


class Takes(Protocol[P, Made]):
    """The decorator that `takes` returns."""

    @overload
    def __call__(self, function: Callable[[S, Made], R], /) -> Attribute[Method[P, Made, R]]: ...
    @overload
    def __call__(self, function: Callable[[S, K, Made], R], /) -> Attribute[MethodOf[K, P, Made, R]]: ...


def takes(model: Callable[P, Made]) -> Takes[P, Made]:
    """Let the last argument of a method, a ``model``, be given as a whole or by its fields."""
    return partial(Attribute, model)  # type: ignore[arg-type]
