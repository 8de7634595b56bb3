"""Retries and parsing, shared by both clients.

Every request may be sent twice without doing anything twice (content is stored once, a job carries an
Idempotency-Key). So all are retried on a lost connection and on 429, 502, 503 and 504, after ``Retry-After`` or an
exponentially growing delay. Other errors are raised as the class of `rubricsvc.errors` that the service raised.
"""

from __future__ import annotations

import random
import time
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from rubricsvc import errors
from rubricsvc.client.requests import Request
from rubricsvc.errors import FormatError, RubricsvcError, UnavailableError
from rubricsvc.schemas import ErrorBody
from rubricsvc.settings import secret

RETRIES = 5
MAX_DELAY_S = 30.0
_RETRIED_STATUS = {429, 502, 503, 504}

M = TypeVar("M", bound=BaseModel)

Result = httpx2.Response | httpx2.TransportError


def http_options(base_url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    """Return the constructor arguments of the httpx2 client. ``api_key`` defaults to ``RUBRICSVC_API_KEY``."""
    key = api_key or secret("RUBRICSVC_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return {"base_url": base_url.rstrip("/") + "/v1/", "headers": headers, "timeout": timeout}


def retry_delay(result: Result, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt, or None if ``result`` is final."""
    response = result if isinstance(result, httpx2.Response) else None
    if attempt >= RETRIES or (response is not None and response.status_code not in _RETRIED_STATUS):
        return None
    backoff = min(MAX_DELAY_S, 0.2 * 2.0**attempt) * random.uniform(0.5, 1.0)
    header: str | None = response.headers.get("retry-after") if response is not None else None
    if header is None:
        return backoff
    try:
        asked = float(header) if header.isdecimal() else parsedate_to_datetime(header).timestamp() - time.time()
    except ValueError:
        return backoff
    return min(MAX_DELAY_S, max(0.0, asked))


def parse(request: Request[M], result: Result) -> M:
    """Return the body of a final ``result``.

    Raises:
        RubricsvcError: the service's error, or UnavailableError if there was no response.
    """
    if not isinstance(result, httpx2.Response):
        raise UnavailableError(
            f"the service cannot be reached: {result}", hint="check that `rubricsvc serve` runs, and the URL"
        )
    if not result.is_success:
        raise error_of(result)
    return request.returns.model_validate_json(result.content, extra="ignore")  # a newer service may send more fields


def error_of(response: httpx2.Response) -> RubricsvcError:
    """Return the exception that the service raised, or a generic one if the body is not the service's."""
    try:
        problem = ErrorBody.model_validate_json(response.content, extra="ignore").error
    except ValidationError:
        error = (UnavailableError if response.status_code in _RETRIED_STATUS else RubricsvcError)(
            f"HTTP {response.status_code}: {response.text[:200]}", hint="check that the URL leads to rubricsvc"
        )
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
