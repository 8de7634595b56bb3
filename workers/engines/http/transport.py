"""One HTTP call to an OpenAI-compatible server: its whole body, or a `Miss` that says what came instead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from re import IGNORECASE
from re import compile as regex
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import RAW_CHARS, Reason
from rubricsvc.settings import secret
from workers.engines.base import Failure, error_message
from workers.engines.http.replies import LARGEST_BODY

_PROBE_SECONDS = 10.0
_OUT_OF_TIME = (408, 504, 524)
"""A gateway's own time limits (524 is Cloudflare's): the server behind it may go on, and be paid."""

_OVER_CONTEXT = regex(r"context.{0,3}(length|size|window)|maximum model length|max_model_len", IGNORECASE)


@dataclass(frozen=True)
class RequestFailed:
    """A call that gave no reply; ``retry`` says whether another one may, ``after`` what the server asked for.

    ``status`` is that of HTTP, 0 where there is none or none that matters. ``worked``: the server may have done the
    work all the same, and have it paid.
    """

    failure: Failure
    retry: bool = False
    after: float | None = None
    status: int = 0
    worked: bool = False


class Bounded(httpx2.AsyncClient):
    """The client's HTTP, straight over aiohttp: what httpx puts around a request takes as long as all the rest.

    It reads a response's body up to a byte over ``LARGEST_BODY``, and hangs up on what is left. Redirects and the
    environment's proxies are followed; deadlines are the caller's.
    """

    def __init__(self, base_url: str) -> None:
        super().__init__(trust_env=False, transport=httpx2.AsyncBaseTransport())  # none: nothing is sent through it
        self._proxy = _proxy_of(base_url)
        self._session: aiohttp.ClientSession | None = None

    def build_request(self, method: str, url: httpx2.URL | str, **parts: Any) -> httpx2.Request:
        body = parts.get("json")
        content = parts.get("content") if body is None else json.dumps(body, ensure_ascii=False).encode()
        return httpx2.Request(method, url, headers=parts.get("headers"), content=content)

    async def send(self, request: httpx2.Request, **_: Any) -> httpx2.Response:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),  # the gate has the limit
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
                body += part[: LARGEST_BODY + 1 - len(body)]
                if len(body) > LARGEST_BODY:
                    response.close()
                    break
            plain = [(name, value) for name, value in response.headers.items() if name.lower() not in _OF_THE_WIRE]
            return httpx2.Response(response.status, headers=plain, content=bytes(body), request=request)

    async def aclose(self) -> None:
        """A later call opens connections anew."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await super().aclose()


_KEEP_ALIVE_S = 4.0
"""Shorter than uvicorn's 5 s, so that we do not write into a connection that the server is closing."""

_OF_THE_WIRE = {"content-encoding", "content-length", "transfer-encoding", "content-type"}
"""Headers that say how the body came. It is decoded here, may be cut, and is UTF-8 whatever a server says."""


class Transport:
    """The connections to one server, kept open between calls. Each call has one deadline, ``endpoint.timeout_s``, and
    a short one where the server need not think: the model is not asked."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._timeout_s = endpoint.timeout_s
        self._quick_s = min(endpoint.timeout_s, _PROBE_SECONDS)
        self._base = (endpoint.base_url or "https://api.openai.com/v1").rstrip("/")
        self._client = AsyncOpenAI(
            base_url=self._base,  # and not whatever OPENAI_BASE_URL says
            api_key=secret(endpoint.key_variable) or "none",  # servers of one's own ask for none
            max_retries=0,
            timeout=None,  # one deadline for the whole attempt is set around it
            http_client=Bounded(self._base),
        )

    async def aclose(self) -> None:
        await self._client.close()

    @property
    def root(self) -> str:
        """The server's address without ``/v1``, under which vLLM has what OpenAI has not."""
        return self._base.removesuffix("/v1")

    async def get(self, path: str) -> bytes | RequestFailed:
        """As ``post``, for what a server knows without thinking."""
        return await self._call(lambda: self._client.get(self._whole(path), cast_to=httpx2.Response), self._quick_s)

    async def post(self, path: str, body: dict[str, Any], *, quick: bool = False) -> bytes | RequestFailed:
        """The body of the response with status 200. Never raises for what a server does wrong."""
        seconds = self._quick_s if quick else self._timeout_s
        # The bare response: to build the SDK's response models costs as much as the request itself.
        return await self._call(
            lambda: self._client.post(self._whole(path), cast_to=httpx2.Response, body=body), seconds
        )

    def _whole(self, path: str) -> str:
        """The whole address: the SDK puts a path together at a tenth of a call's cost."""
        return path if "://" in path else self._base + path

    async def alive(self) -> bool:
        """Whether the server answers at all: a refusal is an answer too."""
        content = await self.get("/models")
        return not isinstance(content, RequestFailed) or 0 < content.status < 500

    async def _call(self, request: Callable[[], Awaitable[httpx2.Response]], seconds: float) -> bytes | RequestFailed:
        try:
            async with asyncio.timeout(seconds):
                response = await request()
        except TimeoutError:
            return RequestFailed(
                Failure(Reason.TIMEOUT, f"no whole answer within {seconds:g} s"), retry=True, worked=True
            )
        except APIStatusError as error:
            return _refusal(error)
        except (APIConnectionError, aiohttp.ClientError) as error:
            # The transport calls a dropped connection a timeout; timeouts are ours alone, so it is none.
            detail = f"{self._client.base_url}: {_root_of(error)}"
            return RequestFailed(Failure(Reason.UNREACHABLE, detail), retry=True, worked=not _never_connected(error))
        except Exception as error:  # noqa: BLE001 - an ask never raises for what a server does wrong
            return RequestFailed(Failure(Reason.ENGINE_ERROR, error_message(error)))
        return response.content


def _proxy_of(url: str) -> str | None:
    """What the environment says, looked up once: for each call it would take as long as the call."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _never_connected(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, aiohttp.ClientConnectorError):
        error = error.__cause__
    return error is not None


def _root_of(error: BaseException) -> str:
    """Why there is no connection, in the system's own words: what wraps them speaks of ssl and of timeouts."""
    while error.__cause__ is not None:
        error = error.__cause__
    inner = getattr(error, "os_error", error)
    if isinstance(inner, ConnectionRefusedError):
        return "nothing listens there (connection refused)"
    return inner.strerror if isinstance(inner, OSError) and inner.strerror else f"{type(error).__name__}: {error}"


def _refusal(error: APIStatusError) -> RequestFailed:
    status, raw = error.status_code, error.response.text[:RAW_CHARS]
    detail = f"HTTP {status}: {error.message}"[:RAW_CHARS]
    if status == 429:
        return RequestFailed(Failure(Reason.RATE_LIMITED, detail, raw), True, retry_after(error.response), status)
    if status >= 500 or status in (408, 409):
        reason = Reason.TIMEOUT if status == 408 else Reason.SERVER_ERROR
        late = status in _OUT_OF_TIME
        return RequestFailed(Failure(reason, detail, raw), True, retry_after(error.response), status, worked=late)
    reason = Reason.TOO_LONG if status == 413 or _OVER_CONTEXT.search(raw) else Reason.REFUSED
    return RequestFailed(Failure(reason, detail, raw), status=0 if reason is Reason.TOO_LONG else status)


def retry_after(response: httpx2.Response) -> float | None:
    """Seconds that the server asks to wait; the header holds seconds or a date."""
    given = response.headers.get("retry-after", "")
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if seconds >= 0 else None
