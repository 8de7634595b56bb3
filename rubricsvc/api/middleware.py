"""Middleware: request ids, logging, metrics, and the limit on request bodies."""

import asyncio
import re
import time
import uuid
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rubricsvc.api import errors
from rubricsvc.errors import TooLargeError, UnavailableError

log = structlog.get_logger(__name__)

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_QUIET = {"/healthz", "/readyz", "/metrics"}


@dataclass(eq=False)
class RequestContext:
    """Assign ``X-Request-ID``, log and count the request, and respond 500 to unhandled exceptions.

    Reject bodies of more than ``settings.max_body_mib``: by their Content-Length, or while they are read.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if re.fullmatch(r"[\w.:-]{1,128}", given, re.ASCII) else uuid.uuid4().hex
        mib: float = scope["app"].state.settings.max_body_mib
        too_large = HTTPException(TooLargeError.status, f"the request body is larger than {mib:g} MiB")
        declared = headers.get("content-length", "")
        status = seen = 0
        start = time.perf_counter()

        async def receive_limited() -> Message:
            nonlocal seen
            received = await receive()
            seen += len(received.get("body", b""))
            if seen > mib * 2**20:  # HTTPException is the only exception that FastAPI passes on here
                raise too_large
            return received

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                if declared.isdecimal() and float(declared) > mib * 2**20:
                    await errors.error_response(scope, too_large)(scope, receive, send_with_id)
                else:
                    await self.app(scope, receive_limited, send_with_id)
            except asyncio.CancelledError:  # by the server, which stops
                if status:
                    raise
                stopping = UnavailableError("the service is stopping", hint="send the same request again")
                await errors.error_response(scope, stopping)(scope, receive, send_with_id)
            except Exception as error:
                log.exception("request_failed")
                if status:
                    raise  # the response has started and can only be aborted
                await errors.error_response(scope, error)(scope, receive, send_with_id)
            finally:
                method = scope["method"] if scope["method"] in _METHODS else "other"
                route, seconds = getattr(scope.get("route"), "path", "unmatched"), time.perf_counter() - start
                scope["app"].state.metrics.request(method, route, status, seconds)
                write, ms = log.debug if route in _QUIET else log.info, round(1000 * seconds, 2)
                write("request", method=method, path=scope["path"], route=route, status=status, ms=ms)
