"""OpenAI's client for one server: one call, and its whole body or a `RequestFailed`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import RAW_CHARS, Reason
from rubricsvc.settings import secret
from workers.engines.base import Failure, RequestFailed, error_message

MAX_BODY_BYTES = 8 * 2**20
"""Bytes that are read of a response of any status. A verdict has some thousand; no server may fill the memory."""

PROBE_TIMEOUT_S = 10.0
_KEEP_ALIVE_S = 4.0
"""Shorter than uvicorn's 5 s, so that no request is written into a connection that the server is closing."""

_GATEWAY_TIMEOUTS = (408, 504, 524)
"""A gateway's own time limits (524 is Cloudflare's): the server behind it may finish the work and charge for it."""

_OVER_CONTEXT = re.compile(r"context.{0,3}(length|size|window)|maximum model length|max_model_len", re.IGNORECASE)


class _BoundedTransport(httpx2.AsyncClient):
    """The SDK's HTTP client, over aiohttp: httpx's own pipeline costs as much as the rest of a call.

    It reads at most one byte over ``MAX_BODY_BYTES``. Redirects and the environment's proxies are followed.
    """

    def __init__(self, base_url: str) -> None:
        super().__init__(trust_env=False, transport=httpx2.AsyncBaseTransport())  # unused: `send` is replaced
        parts = urlsplit(base_url)  # once: the lookup takes as long as a call
        self._proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        self._session: aiohttp.ClientSession | None = None

    def build_request(self, method: str, url: httpx2.URL | str, **parts: Any) -> httpx2.Request:
        """Return a request without httpx's merging of defaults."""
        return httpx2.Request(method, url, headers=parts.get("headers"), content=parts.get("content"))

    async def send(self, request: httpx2.Request, **_: Any) -> httpx2.Response:
        """Send a request and return its response, with a bounded body."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The throttle limits the number of connections.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(),
            )
        body = bytearray()
        async with self._session.request(
            request.method,
            str(request.url),
            data=request.content,
            headers=request.headers.multi_items(),
            proxy=self._proxy,
        ) as response:
            async for part in response.content.iter_any():
                body += part[: MAX_BODY_BYTES + 1 - len(body)]
                if len(body) > MAX_BODY_BYTES:
                    response.close()
                    break
            # Not of the body in transit: here it is decoded, may be cut, and is read as UTF-8 whatever is declared.
            headers = {"Retry-After": response.headers.get("Retry-After", "")}
            return httpx2.Response(response.status, headers=headers, content=bytes(body), request=request)

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await super().aclose()


class HttpClient:
    """OpenAI's client for one server. Each call has one deadline."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._base = (endpoint.base_url or "https://api.openai.com/v1").rstrip("/")
        self._timeout_s = endpoint.timeout_s
        self._client = AsyncOpenAI(
            base_url=self._base,  # not OPENAI_BASE_URL
            api_key=secret(endpoint.key_variable) or "none",  # self-hosted servers need no key
            max_retries=0,  # the throttle retries
            timeout=None,  # `call` has the deadline
            http_client=_BoundedTransport(self._base),
        )

    @property
    def root(self) -> str:
        """The server's address without ``/v1``, where vLLM and SGLang have their own paths."""
        return self._base.removesuffix("/v1")

    async def is_alive(self) -> bool:
        """Return whether the server answers at all; a refusal (4xx) is an answer."""
        content = await self.call("/models", quick=True)
        return not isinstance(content, RequestFailed) or 0 < content.status < 500

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def call(
        self, path: str, body: dict[str, Any] | None = None, *, quick: bool = False
    ) -> bytes | RequestFailed:
        """Return the body of the response to ``POST path``, or without ``body`` to ``GET path``.

        The path is under the base URL, or a whole URL. A ``quick`` call does not use the model.
        """
        url = path if "://" in path else self._base + path  # the SDK takes a tenth of a call to join it
        timeout_s = min(self._timeout_s, PROBE_TIMEOUT_S) if quick else self._timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                # A raw response: building the SDK's response models costs as much as the request.
                if body is None:
                    response = await self._client.get(url, cast_to=httpx2.Response)
                else:
                    response = await self._client.post(url, cast_to=httpx2.Response, body=body)
        except TimeoutError:
            failure = Failure(Reason.TIMEOUT, f"no complete response within {timeout_s:g} s")
            return RequestFailed(failure, retry=True, billable=True)
        except APIStatusError as error:
            return _refusal(error)
        except (APIConnectionError, aiohttp.ClientError) as error:
            cause = error.__cause__ if isinstance(error, APIConnectionError) else error  # the SDK wraps timeouts only
            failure = Failure(Reason.UNREACHABLE, f"{self._base}: {_describe(cause)}")
            return RequestFailed(failure, retry=True, billable=not isinstance(cause, aiohttp.ClientConnectorError))
        except Exception as error:  # noqa: BLE001 - an engine never raises for errors of a server
            return RequestFailed(Failure(Reason.ENGINE_ERROR, error_message(error)))
        return response.content


def _describe(error: BaseException | None) -> str:
    """Return the system's own message: aiohttp's mentions ssl even without TLS."""
    cause = getattr(error, "os_error", error)
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    return getattr(cause, "strerror", None) or error_message(cause)


def _refusal(error: APIStatusError) -> RequestFailed:
    status, raw = error.status_code, raw_text(error.response.content)
    message = error.body.get("message") if isinstance(error.body, dict) else None
    detail = f"HTTP {status}: {message if message and isinstance(message, str) else raw}"[:RAW_CHARS]
    if status == 429 or status >= 500 or status in (408, 409):
        reason = {429: Reason.RATE_LIMITED, 408: Reason.TIMEOUT}.get(status, Reason.SERVER_ERROR)
        pause_s, late = retry_after(error.response.headers), status in _GATEWAY_TIMEOUTS
        return RequestFailed(Failure(reason, detail, raw), True, pause_s, status, billable=late)
    reason = Reason.TOO_LONG if status == 413 or _OVER_CONTEXT.search(raw) else Reason.REFUSED
    return RequestFailed(Failure(reason, detail, raw), status=0 if reason is Reason.TOO_LONG else status)


def raw_text(body: bytes) -> str:
    """Return the beginning of a body, of the length that is stored."""
    return body[: 4 * RAW_CHARS].decode("utf-8", "replace")[:RAW_CHARS]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of the ``Retry-After`` header; None for a date."""
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:
        return None
    return seconds if seconds >= 0 else None
