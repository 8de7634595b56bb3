"""Strict request bodies: standard JSON, no duplicate keys, no coercion, nothing that a database cannot store.

FastAPI parses a body with Python's ``json`` (which accepts NaN) and validates in lax mode (where ``false`` is a
number). Here the bytes are validated as JSON in pydantic's strict mode.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import pydantic_core
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rubricsvc.formats.strictjson import no_constant, once

T = TypeVar("T", bound=BaseModel)
Location = tuple[str | int, ...]


class _JsonBytes(bytes):
    """Body whose Content-Type is JSON."""


class _Request(Request):
    async def json(self) -> Any:
        return _JsonBytes(await self.body())


class StrictRoute(APIRoute):
    """Route that passes its body to `Json` as bytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with a request whose ``json()`` gives the raw bytes."""
        handle = super().get_route_handler()

        async def handle_raw(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return handle_raw


class _Strict:
    """Annotation of a body type; see `Json`."""

    def __get_pydantic_core_schema__(self, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(raw: object) -> BaseModel:
            if not isinstance(raw, _JsonBytes):
                raise PydanticCustomError("json_invalid", "the body must have Content-Type: application/json")
            try:
                plain = json.loads(raw, object_pairs_hook=once, parse_constant=no_constant)
            except (ValueError, RecursionError) as error:
                raise PydanticCustomError("json_invalid", "not JSON: {why}", {"why": str(error)}) from None
            _reject_unstorable(plain)
            return source.model_validate_json(raw, strict=True)

        return core_schema.no_info_before_validator_function(read, handler(source))


Json = Annotated[T, _Strict()]
"""Strictly validated body of an endpoint of a `StrictRoute`: ``new: Json[NewPrompt]``."""


def _reject_unstorable(value: Any, location: Location = ()) -> None:
    """Reject JSON that cannot be stored: U+0000 (PostgreSQL), and numbers that overflow to infinity."""
    if isinstance(value, dict):
        for key, item in value.items():
            _reject_unstorable(key, (*location, key))
            _reject_unstorable(item, (*location, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _reject_unstorable(item, (*location, index))
    elif isinstance(value, str) and "\0" in value:
        raise _error(location, "the text contains U+0000, which a database cannot store")
    elif isinstance(value, float) and not math.isfinite(value):
        raise _error(location, "the number is too large")


def _error(location: Location, message: str) -> pydantic_core.ValidationError:
    error = pydantic_core.InitErrorDetails(type=PydanticCustomError("not_storable", message), loc=location, input=None)
    return pydantic_core.ValidationError.from_exception_data("body", [error])
