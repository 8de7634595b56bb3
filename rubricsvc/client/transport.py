"""Requests, retries and responses of the client.

Every request may be sent twice without doing anything twice (content is stored once, a job carries an
Idempotency-Key). So all are retried on a lost connection and on 429, 502, 503 and 504, after ``Retry-After`` or an
exponentially growing delay, until the client's ``outage_seconds`` after the first failure. Other errors are raised as
the class of `rubricsvc.errors` that the service raised.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError

from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.schemas import ErrorBody
from rubricsvc.schemas.base import Method, MethodOf, request

if TYPE_CHECKING:
    from rubricsvc.client.clients import Client

MAX_DELAY_S = 30.0
_MAX_BACKOFF_S = 5.0
_WARN_AT = 3  # failed attempts: after one to two seconds
_RETRIED_STATUS = {429, 502, 503, 504}

log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)
P = ParamSpec("P")
Q = TypeVar("Q")


@dataclass(eq=False)
class Noun:
    """Methods of one noun, bound to a client."""

    client: Client

    def send(self, returns: type[M], method: str, path: str, **options: Any) -> M:
        """Send a `request`, and return its response as a ``returns``."""
        response = self.request(method, path, **options)
        try:
            return returns.model_validate_json(response.content, extra="ignore")  # newer services may send more fields
        except ValidationError as error:
            place, message = first_error(error)
            raise RubricsvcError(
                f"unexpected response of {response.url}: {place}: {message}",
                hint="check that the URL leads to rubricsvc, of the client's version",
            ) from None

    def request(
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
        query: dict[str, Any] = {name: value for name, value in (params or {}).items() if value is not None}
        attempt, end = 0, None
        while True:
            retry_after = ""
            try:
                response = self.client.http.request(method, path, params=query, headers=headers, content=body)
            except httpx2.TransportError as lost:
                message = f"no service answers at {self.client.http.base_url}: {lost}"
                error: RubricsvcError = UnavailableError(message, hint="start `rubricsvc serve`, or correct the URL")
            else:
                if response.is_success:
                    return response
                error = error_of(response)
                if response.status_code not in _RETRIED_STATUS:
                    raise error
                retry_after = response.headers.get("retry-after", "")
            end = end or time.monotonic() + self.client.outage_seconds
            if (left := end - time.monotonic()) <= 0:
                raise error from None
            if attempt == _WARN_AT:
                log.warning("retrying for %.0f s: %s", left, error)
            backoff = min(_MAX_BACKOFF_S, 0.2 * 2.0 ** min(attempt, 9)) * random.uniform(0.5, 1.0)
            delay = float(retry_after) if retry_after.isdecimal() else backoff
            time.sleep(min(MAX_DELAY_S, delay, left))
            attempt += 1


def endpoint(returns: type[M], route: str, model: Callable[P, Q]) -> Method[P, Q, M]:
    """Make the method that sends a request; see `request` for its arguments.

    The model is the query of a ``GET`` and a ``POST?``, and the body of a ``POST``; the model `object` has no fields. A
    new job gets an idempotency key, so that a request that is sent twice makes one job.
    """
    verb, _, path = route.partition(" ")
    count = path.count("{}")

    def send(noun: Noun, *args: Any, **fields: Any) -> Any:
        url = path.format(*(quote(str(ref), safe="@/") for ref in args[:count]))
        if model is object:
            return noun.send(returns, verb.rstrip("?"), url)
        made = request(model, *args[count:], **fields)
        if verb != "POST":
            return noun.send(returns, verb.rstrip("?"), url, params=made.model_dump(exclude_unset=True))
        if "key" in type(made).model_fields and made.key is None:
            made = made.model_copy(update={"key": uuid.uuid4().hex})
        return noun.send(returns, verb, url, body=made)

    return cast("Method[P, Q, M]", send)


def ref_endpoint(returns: type[M], route: str, model: Callable[P, Q]) -> MethodOf[int | str, P, Q, M]:
    """Make an `endpoint` whose first argument is the id or name for the ``{}`` of the path."""
    return cast("MethodOf[int | str, P, Q, M]", endpoint(returns, route, model))


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
