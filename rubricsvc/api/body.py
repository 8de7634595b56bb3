"""Strict request bodies: standard JSON, no duplicate keys, no coercion, nothing that a database cannot store.

FastAPI parses a body with Python's ``json`` (which accepts NaN) and validates in lax mode (where ``false`` is a
number). Here the bytes are validated as JSON in pydantic's strict mode.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

import pydantic_core
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from rubricsvc.core import strict_json
from rubricsvc.core.validation_messages import FieldPath

T = TypeVar("T", bound=BaseModel)


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
                strict_json.parse(raw.decode())
            except strict_json.JsonError as error:
                if error.code == "unstorable":
                    raise _error(error.path, str(error)) from None
                raise PydanticCustomError("json_invalid", "not JSON: {why}", {"why": str(error)}) from None
            except UnicodeDecodeError:
                raise PydanticCustomError("json_invalid", "not JSON: not UTF-8") from None
            return source.model_validate_json(raw, strict=True)

        return core_schema.no_info_before_validator_function(read, handler(source))


Json = Annotated[T, _Strict()]
"""Strictly validated body of an endpoint of a `StrictRoute`: ``new: Json[NewPrompt]``."""


def _error(path: FieldPath, message: str) -> pydantic_core.ValidationError:
    error = pydantic_core.InitErrorDetails(type=PydanticCustomError("not_storable", message), loc=path, input=None)
    return pydantic_core.ValidationError.from_exception_data("body", [error])
