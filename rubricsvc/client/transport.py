"""Requests, retries and responses as flows, shared by both clients.

A flow is a generator that yields the arguments of a request, or seconds to sleep; it is resumed with the response. A
client runs it, blocking or in an event loop.

Every request may be sent twice without doing anything twice (content is stored once, a job carries an
Idempotency-Key). So all are retried on a lost connection and on 429, 502, 503 and 504, after ``Retry-After`` or an
exponentially growing delay. Other errors are raised as the class of `rubricsvc.errors` that the service raised.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from itertools import count
from typing import Any, TypeAlias, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from rubricsvc import errors
from rubricsvc.errors import FormatError, RubricsvcError, UnavailableError
from rubricsvc.schemas import ErrorBody
from rubricsvc.settings import secret

RETRIES = 5
MAX_DELAY_S = 30.0
_RETRIED_STATUS = {429, 502, 503, 504}

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

Result = httpx2.Response | httpx2.TransportError
Flow: TypeAlias = Generator[dict[str, Any] | float, Any, T]


def http_options(base_url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    """Return the constructor arguments of the httpx2 client. ``api_key`` defaults to ``RUBRICSVC_API_KEY``."""
    key = api_key or secret("RUBRICSVC_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return {"base_url": base_url.rstrip("/") + "/v1/", "headers": headers, "timeout": timeout}


def send(
    returns: type[M],
    method: str,
    path: str,
    params: Mapping[str, Any] | None = None,
    *,
    body: BaseModel | bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Flow[M]:
    """Send a request, with retries, and return its response as a ``returns``. Parameters that are None are not sent.

    Raises:
        RubricsvcError: the service's error, or UnavailableError if there was no response.
    """
    json = isinstance(body, BaseModel)
    request = {
        "method": method,
        "url": path,
        "params": {name: value for name, value in (params or {}).items() if value is not None},
        "headers": {**({"Content-Type": "application/json"} if json else {}), **(headers or {})},
        "content": body.model_dump_json().encode() if isinstance(body, BaseModel) else body,
    }
    for attempt in count():
        result: Result = yield request
        if (delay := _retry_delay(result, attempt)) is None:
            break
        yield delay
    if not isinstance(result, httpx2.Response):
        hint = "check that `rubricsvc serve` runs, and the URL"
        raise UnavailableError(f"the service cannot be reached: {result}", hint=hint)
    if not result.is_success:
        raise error_of(result)
    return returns.model_validate_json(result.content, extra="ignore")  # a newer service may send more fields


def _retry_delay(result: Result, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt, or None if ``result`` is final."""
    response = result if isinstance(result, httpx2.Response) else None
    if attempt >= RETRIES or (response is not None and response.status_code not in _RETRIED_STATUS):
        return None
    backoff = min(MAX_DELAY_S, 0.2 * 2.0**attempt) * random.uniform(0.5, 1.0)
    seconds = response.headers.get("retry-after", "") if response is not None else ""
    return min(MAX_DELAY_S, float(seconds)) if seconds.isdecimal() else backoff


def error_of(response: httpx2.Response) -> RubricsvcError:
    """Return the exception that the service raised, or a generic one if the body is not the service's."""
    try:
        problem = ErrorBody.model_validate_json(response.content, extra="ignore").error
    except ValidationError:
        kind = UnavailableError if response.status_code in _RETRIED_STATUS else RubricsvcError
        message = f"HTTP {response.status_code}: {response.text[:200]}"
        error = kind(message, hint="check that the URL leads to rubricsvc")
    else:
        kind = {cls.code: cls for cls in error_types()}.get(problem.code, RubricsvcError)
        error = kind(problem.message, hint=problem.hint, path=problem.path)
        error.code = problem.code
        if isinstance(error, FormatError):
            error.errors = problem.errors
    error.status = response.status_code
    return error


def error_types() -> list[type[RubricsvcError]]:
    """Return the classes of `rubricsvc.errors`. A subclass defined elsewhere arrives as its parent."""
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RubricsvcError)]
