"""Error responses: ``{"error": {"code", "message", "hint", "path"}}``, and the ``errors`` of an invalid file."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, IntegrityError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from rubricsvc.core.validation_messages import field_messages
from rubricsvc.errors import InvalidError, MalformedError, RubricsvcError, TooLargeError, UnavailableError
from rubricsvc.schemas.base import ErrorBody, Problem
from rubricsvc.store.session import AWAY

log = structlog.get_logger(__name__)


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI ``responses`` for these statuses and those that every endpoint may send."""
    statuses_ = {400, 401, 403, 413, 422, 500, 503, *statuses}
    return {status: {"model": ErrorBody, "description": HTTPStatus(status).phrase} for status in sorted(statuses_)}


def error_response(scope: Scope, raised: Exception) -> JSONResponse:
    """Return the response to a request that raised any exception."""
    error = from_exception(raised)
    problem = Problem.of(error)
    headers = dict(_HEADERS.get(error.status, {}))
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:  # the framework names the methods of the first route
        matching = (route for route in scope["app"].routes if route.matches(scope)[0] is not Match.NONE)
        methods = {method for route in matching for method in getattr(route, "methods", None) or ()}
        headers["Allow"] = ", ".join(sorted(methods))
    content = ErrorBody(error=problem).model_dump(exclude={"error": {"errors"}} if not problem.errors else None)
    return JSONResponse(content, error.status, headers)


_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}


def from_exception(error: Exception) -> RubricsvcError:
    """Return the RubricsvcError that corresponds to any exception."""
    match error:
        case RubricsvcError():
            return error
        case RequestValidationError():
            return _of_validation(error.errors())
        case HTTPException(status_code=413):
            hint = "split the request into smaller ones, or raise RUBRICSVC_MAX_BODY_MIB"
            return TooLargeError(str(error.detail), hint=hint)
        case HTTPException(status_code=400):
            return MalformedError(str(error.detail), hint=_SEE_DOCS)
        case HTTPException(status_code=status):  # of the framework: unknown route, wrong method
            made = RubricsvcError(str(error.detail), hint=_SEE_DOCS)
            made.status, made.code = status, HTTPStatus(status).name.lower()
            return made
        case _ if isinstance(error, AWAY):
            log.error("database_unavailable", error=UnavailableError.of_database(error).message)
            return UnavailableError("the database is unavailable", hint="check it with `rubricsvc doctor`")
        case IntegrityError():
            log.error("integrity_error", error=str(error.orig))
            return UnavailableError("a row that it needs was changed or deleted meanwhile", hint="send it again")
        case DataError() | OverflowError():
            hint = "send shorter texts and smaller numbers; /docs lists the limits"
            return InvalidError("a value exceeds the limits of the database", hint=hint)
        case _:
            hint = "this is a bug: please report it with the log lines of this request id"
            return RubricsvcError("internal error; the service's log has the details under this request id", hint=hint)


HANDLERS: dict[Any, Any] = dict.fromkeys(  # of exceptions that have a response of their own
    (RubricsvcError, RequestValidationError, HTTPException, *AWAY, IntegrityError, DataError, OverflowError),
    lambda request, error: error_response(request.scope, error),
)


def _of_validation(raised: Sequence[Any]) -> RubricsvcError:
    messages = field_messages(raised)
    # a part in brackets is the name of a validator
    paths = [".".join(part for part in map(str, one.path) if "[" not in part) for one in messages]
    first, path = messages[0], paths[0]
    if first.code == "json_invalid":
        hint = "send one JSON value with Content-Type: application/json"
        return MalformedError(raised[0]["msg"], hint=hint, path=path)
    hint = f"{_HINTS.get(first.code, 'correct the value')}; see /docs for fields, types and limits"
    listed = [f"{at}: {one.message}" for at, one in zip(paths[:_MAX_LISTED], messages, strict=False)]
    more = [f"and {len(messages) - _MAX_LISTED} more"] if len(messages) > _MAX_LISTED else []
    return InvalidError("; ".join(listed + more), hint=hint, path=path)


_MAX_LISTED = 8
_HINTS = {
    "missing": "add the field",
    "extra_forbidden": "remove the field, or correct its name",
    "string_too_long": "shorten the text",
    "too_long": "send fewer items",
}


_SEE_DOCS = "see /docs for the endpoints and methods"
