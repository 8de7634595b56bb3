"""Requests, retries and responses, shared by both clients.

Every request may be sent twice without doing anything twice: content is stored once, and so is a job of the same
content or key. So all are retried on a lost connection and on 429, 502, 503 and 504, after ``Retry-After`` or an
exponentially growing delay, until the client's ``outage_seconds`` after the first failure. Other errors are raised as
the class of `rubricsvc.errors` that the service raised.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload
from urllib.parse import quote, unquote

import httpx2
from pydantic import BaseModel, ValidationError

from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.schemas.base import ErrorBody, Method, MethodOf, request
from rubricsvc.waiting import retry_after_s

if TYPE_CHECKING:
    from rubricsvc.client.clients import AsyncClient, Client

NOTE = "X-Note"  # header of what a service has read in another way than it was sent
MAX_DELAY_S = 30.0
_MAX_BACKOFF_S = 5.0
_WARN_AT = 3  # failed attempts: after one to two seconds
_RETRIED_STATUS = {429, 502, 503, 504}

log = logging.getLogger(__name__)

C = TypeVar("C", bound="Client | AsyncClient")
M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")
Q = TypeVar("Q")
Blocking = TypeVar("Blocking")
Awaitable_ = TypeVar("Awaitable_")


@dataclass(eq=False)
class Noun(Generic[C]):
    """Methods of one noun, bound to a client."""

    client: Any

    async def send(self, returns: type[M], method: str, path: str, **options: Any) -> M:
        """Send a `request`, and return its response as a ``returns``."""
        response = await self.request(method, path, **options)
        try:
            return returns.model_validate_json(response.content, extra="ignore")  # newer services may send more fields
        except ValidationError as error:
            place, message = first_error(error)
            message = f"unexpected response of {response.url.copy_with(userinfo=b'')}: {place}: {message}"
            hint = "check that the URL leads to rubricsvc, of the client's version"
            raise RubricsvcError(message, hint=hint) from None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: BaseModel | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, object] | None = None,
    ) -> httpx2.Response:
        """Send a request, with retries, and return its successful response. No parameter is sent as None.

        Raises:
            RubricsvcError: the service's error, or UnavailableError if there was no response.
        """
        if isinstance(body, BaseModel):
            body, headers = body.model_dump_json().encode(), {"Content-Type": "application/json", **(headers or {})}
        query = {name: value for name, value in (params or {}).items() if value is not None}
        attempt, end = 0, None
        while True:
            asked: float | None = None
            try:
                request = self.client.http.request(method, path, params=query, headers=headers, content=body)
                response: httpx2.Response = await request if isawaitable(request) else request
            except httpx2.TransportError as lost:
                message = f"no service answers at {self.client.http.base_url.copy_with(userinfo=b'')}: {lost}"
                error: RubricsvcError = UnavailableError(message, hint="start `rubricsvc serve`, or correct the URL")
            else:
                if response.is_success:
                    if note := response.headers.get(NOTE):
                        log.warning(unquote(note))
                    return response
                error = error_of(response)
                if response.status_code not in _RETRIED_STATUS:
                    raise error
                asked = retry_after_s(response.headers.get("retry-after", ""))
            end = end or time.monotonic() + self.client.outage_seconds
            if (left := end - time.monotonic()) <= 0:
                raise error from None
            if attempt == _WARN_AT:
                log.warning("retrying for %.0f s: %s", left, error)
            backoff = min(_MAX_BACKOFF_S, 0.2 * 2.0 ** min(attempt, 9)) * random.uniform(0.5, 1.0)
            await self.client.sleep(min(MAX_DELAY_S, backoff if asked is None else asked, left))
            attempt += 1


@dataclass(eq=False)
class Bound(Generic[Blocking, Awaitable_]):
    """Descriptor of a coroutine function as a method: blocking on a `Client`, a coroutine on an `AsyncClient`."""

    function: Callable[..., Coroutine[Any, Any, Any]]
    route: str = ""

    @overload
    def __get__(self, noun: None, owner: object = None) -> Callable[..., Coroutine[Any, Any, Any]]: ...
    @overload
    def __get__(self, noun: Noun[Client], owner: object = None) -> Blocking: ...
    @overload
    def __get__(self, noun: Noun[AsyncClient], owner: object = None) -> Awaitable_: ...

    def __get__(self, noun: Any, owner: object = None) -> Any:
        if noun is None:
            return self.function
        return wraps(self.function)(lambda *args, **kwargs: noun.client.run(self.function(noun, *args, **kwargs)))


def method(
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Bound[Callable[P, T], Callable[P, Coroutine[Any, Any, T]]]:
    """Make a coroutine function a method."""
    return Bound(function)


One = Bound[MethodOf[int | str, P, Q, M], MethodOf[int | str, P, Q, Coroutine[Any, Any, M]]]
"""A method about what an id or name refers to."""
All = Bound[Method[P, Q, M], Method[P, Q, Coroutine[Any, Any, M]]]


def endpoint(returns: type[M], route: str, model: Callable[P, Q]) -> All[P, Q, M]:
    """Make the method that sends a request; see `request` for its arguments.

    The model is the query of a ``GET`` and a ``POST?``, and the body of a ``POST``; the model `object` has no fields.
    """
    verb, _, path = route.partition(" ")
    count = path.count("{}")

    async def send(noun: Noun[Any], *args: Any, **fields: Any) -> Any:
        url = path.format(*(quote(str(ref), safe="@/") for ref in args[:count]))
        if model is object:
            return await noun.send(returns, verb.rstrip("?"), url)
        made = request(model, *args[count:], **fields)
        if verb != "POST":
            return await noun.send(returns, verb.rstrip("?"), url, params=made.model_dump(exclude_unset=True))
        return await noun.send(returns, verb, url, body=made)

    return Bound(send, route)


def ref_endpoint(returns: type[M], route: str, model: Callable[P, Q]) -> One[P, Q, M]:
    """Make an `endpoint` whose first argument is the id or name for the ``{}`` of the path."""
    return cast("One[P, Q, M]", endpoint(returns, route, model))


def error_of(response: httpx2.Response) -> RubricsvcError:
    """Return the exception that the service raised, or a generic one if the body is not the service's."""
    try:
        problem = ErrorBody.model_validate_json(response.content, extra="ignore").error
    except ValidationError:
        kind = UnavailableError if response.status_code in _RETRIED_STATUS else RubricsvcError
        message = f"HTTP {response.status_code}: {response.text[:200]}"
        error = kind(message, hint="check that the URL leads to rubricsvc")
    else:
        kind = RubricsvcError.by_code.get(problem.code, RubricsvcError)
        error = kind(problem.message, hint=problem.hint, path=problem.path)
        error.code, error.errors = problem.code, problem.errors
    error.status = response.status_code
    return error
