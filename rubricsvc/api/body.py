"""Strict request bodies: standard JSON, no duplicate keys, no coercion, nothing that a database cannot store.

FastAPI parses a body with Python's ``json`` (which accepts NaN) and validates in lax mode (where ``false`` is a
number). Here the bytes are validated as JSON in pydantic's strict mode.

The cost of a body is bounded: its values are counted before they are decoded, and a large body is validated in a
thread, one at a time, so that other requests are answered meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import pydantic_core
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from rubricsvc.client.transport import NOTE
from rubricsvc.core import strict_json
from rubricsvc.core.prompt import ignored_note
from rubricsvc.core.validation_messages import MAX_ERRORS, field_messages
from rubricsvc.errors import InvalidError, TooLargeError, cut

T = TypeVar("T", bound=BaseModel)

INLINE_BYTES = 16 * 1024  # bytes of a body that is validated without a thread, in a few milliseconds at most

_one_at_a_time = ThreadPoolExecutor(1, "validate-body")


@dataclass(eq=False)
class _Body:
    """Body whose Content-Type is JSON, with the result of its validation."""

    content: bytes
    value: BaseModel | None = None
    error: Exception | None = None
    ignored: set[str] = field(default_factory=set)

    def validate(self, model: type[BaseModel]) -> None:
        """Set ``value``, or ``error`` to what a validator may raise; raise if there are too many values or errors."""
        try:
            strict_json.parse(self.content.decode(), max_values=strict_json.MAX_VALUES)
            self.value = model.model_validate_json(self.content, strict=True, context=self.ignored)
        except strict_json.JsonError as error:
            if error.code == "too_many_values":
                raise TooLargeError(f"the request body {error}", hint="split the request into smaller ones") from None
            self.error = PydanticCustomError("json_invalid", "not JSON: {why}", {"why": str(error)})
            if error.code == "unstorable":
                unstorable = PydanticCustomError("not_storable", str(error))
                details = pydantic_core.InitErrorDetails(type=unstorable, loc=error.path, input=None)
                self.error = ValidationError.from_exception_data("body", [details])
        except UnicodeDecodeError:
            self.error = PydanticCustomError("json_invalid", "not JSON: not UTF-8")
        except ValidationError as error:
            if error.error_count() > MAX_ERRORS:
                hint = "validate a smaller request first; see /docs for fields, types and limits"
                raise InvalidError(field_messages(error)[0].message, hint=hint, path="body") from None
            self.error = error.with_traceback(None)  # whose frames would keep the content in memory
            self.error.__context__ = None
        self.content = b""


class _Request(Request):
    strict_body: _Body | None = None

    async def json(self) -> Any:
        self.strict_body = _Body(await self.body())
        return self.strict_body


class StrictRoute(APIRoute):
    """Route that passes its body to `Json` as bytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with a request whose ``json()`` gives the raw bytes."""
        handle = super().get_route_handler()

        async def handle_raw(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return handle_raw


async def validate_body(request: Request, response: Response) -> None:
    """Validate the body of a `StrictRoute`, in a thread if it is large; refuse one that the endpoint would ignore."""
    body, route = getattr(request, "strict_body", None), request.scope["route"]
    field = getattr(route, "body_field", None)
    if field is None and isinstance(route, StrictRoute) and not route.openapi_extra and await request.body():
        raise InvalidError("this route takes no body", hint="send its parameters in the query; see /docs", path="body")
    if body is None or field is None:
        return
    model = field.field_info.annotation
    if len(body.content) <= INLINE_BYTES:
        body.validate(model)
    else:
        await asyncio.get_running_loop().run_in_executor(_one_at_a_time, body.validate, model)
    if body.ignored:
        response.headers[NOTE] = quote(cut(ignored_note(body.ignored), 1000), safe=" ,:")


def _value_of(body: object) -> BaseModel:
    if not isinstance(body, _Body):
        raise PydanticCustomError("json_invalid", "the body must have Content-Type: application/json")
    if body.value is None:
        raise body.error or TypeError("the application lacks the dependency validate_body")
    return body.value


Json = Annotated[T, BeforeValidator(_value_of)]  # strictly validated body of a `StrictRoute`: ``new: Json[NewPrompt]``
