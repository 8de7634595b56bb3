"""One request as a flow: what to send, when to send it again, and how its answer is read.

A *flow* is a generator. It yields what is to be done (send this, sleep so long) and is handed what came of it, so that
one text serves the client that blocks and the one that awaits. Flows are put together with ``yield from``.

Every call may be sent twice without doing anything twice (content is kept once, a job carries an Idempotency-Key), so
all are retried: on a lost connection, on 429, 502, 503 and 504, after the time that ``Retry-After`` gives or a growing
one. What the service refuses is raised as the class of `rubricsvc.errors` that it was there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError

from rubricsvc import errors
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.schemas import ErrorBody

_AGAIN = {429, 502, 503, 504}
_MAX_DELAY = 30.0

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Send:
    method: str
    path: str
    params: dict[str, Any]
    headers: dict[str, str]
    content: bytes | None


@dataclass(frozen=True)
class Sleep:
    seconds: float


Outcome = httpx2.Response | httpx2.TransportError | None
Flow = Generator[Send | Sleep, Outcome, T]


def call(
    parse: type[M],
    method: str,
    path: str,
    *,
    body: BaseModel | None = None,
    headers: dict[str, str] | None = None,
    retries: int = 5,
    **params: Any,
) -> Flow[M]:
    """One request, again where that may help, and its answer as a ``parse``."""
    content = body.model_dump_json().encode() if body is not None else None
    kind = {"Content-Type": "application/json"} if content is not None else {}
    asked = {name: value for name, value in params.items() if value is not None}
    send = Send(method, path, asked, {**kind, **(headers or {})}, content)
    for attempt in range(retries + 1):
        answer = yield send
        if isinstance(answer, httpx2.Response):
            if answer.is_success:
                return parse.model_validate_json(answer.content, extra="ignore")  # a newer service may say more
            if answer.status_code not in _AGAIN or attempt == retries:
                raise _error_of(answer)
        elif attempt == retries:
            raise UnavailableError(
                f"the service cannot be reached: {answer}", hint="is `rubricsvc serve` running, and the URL right?"
            )
        yield Sleep(_delay(answer, attempt))
    raise AssertionError("unreachable")


def _delay(answer: Outcome, attempt: int) -> float:
    asked: str | None = answer.headers.get("retry-after") if isinstance(answer, httpx2.Response) else None
    seconds = min(_MAX_DELAY, 0.2 * 2.0**attempt) * random.uniform(0.5, 1.0)
    if asked is None:
        return seconds
    try:
        wait = float(asked) if asked.isdecimal() else parsedate_to_datetime(asked).timestamp() - time.time()
    except ValueError:
        return seconds
    return min(_MAX_DELAY, max(0.0, wait))


def _error_of(answer: httpx2.Response) -> RubricsvcError:
    """The exception that the service raised, as it was there; a plain one for what is not the service's own answer."""
    try:
        problem = ErrorBody.model_validate_json(answer.content, extra="ignore").error
    except ValidationError:
        error = (UnavailableError if answer.status_code in _AGAIN else RubricsvcError)(
            f"HTTP {answer.status_code}: {answer.text[:200]}", hint="does the URL lead to rubricsvc?"
        )
    else:
        kind = {cls.code: cls for cls in tree()}.get(problem.code, RubricsvcError)
        error = kind(problem.message, hint=problem.hint, path=problem.path)
        error.code = problem.code
    error.status = answer.status_code
    return error


def tree() -> list[type[RubricsvcError]]:
    """The errors that travel: those of `rubricsvc.errors`. What derives from them elsewhere travels as its parent."""
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RubricsvcError)]


def in_path(ref: int | str) -> str:
    return quote(str(ref), safe="@/")
