"""OpenAI's client for one server, and the parsing of what comes back, of which nothing is trusted."""

import asyncio
import json
import math
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic_core import to_json

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage
from rubricsvc.errors import InvalidError, cut
from rubricsvc.settings import secret
from rubricsvc.waiting import retry_after_s
from workers.engines.base import THINKING_CHARS, Failure, Question, Reply, RequestFailed, error_message, normalize_token

MAX_BODY_BYTES = 8 * 2**20
"""Bytes that are read of a response of any status. A verdict has some thousand; no server may fill the memory."""

PROBE_TIMEOUT_S = 10.0
_KEEP_ALIVE_S = 4.0
"""Shorter than uvicorn's 5 s, so that no request is written into a connection that the server is closing."""

_GATEWAY_TIMEOUTS = (408, 504, 524)
"""A gateway's own time limits (524 is Cloudflare's): the server behind it may finish the work and charge for it."""

_PROBLEMS: dict[Any, str] = {
    IndexError: "it has no choices",
    KeyError: "no field {}",
    (AttributeError, TypeError): "it or a field in it is null, or of another type",
    RecursionError: "it is nested too deeply",
    (UnicodeDecodeError, json.JSONDecodeError): "it is empty, or no JSON in UTF-8",
}
PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)
"""The exceptions of reading a JSON text that is not what it should be."""

_MAX_TOKENS = 1e9

_OVER_CONTEXT = re.compile(r"context.{0,3}(length|size|window)|maximum model length|max_model_len", re.IGNORECASE)


class HttpClient:
    """OpenAI's client for one server: its address and headers, sent over aiohttp, since its pipeline doubles a call.

    Each call has one deadline. At most one byte over ``MAX_BODY_BYTES`` is read of a response. Redirects and the
    environment's proxies are followed.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        key = secret(endpoint.key_variable) or "none"  # self-hosted servers need no key
        account = None if endpoint.key_variable == "OPENAI_API_KEY" else ""  # None: the environment's, OpenAI's alone
        base_url = endpoint.base_url or "https://api.openai.com/v1"  # not OPENAI_BASE_URL
        unused = DefaultAsyncHttpxClient(trust_env=False)  # proxies are aiohttp's
        sdk = AsyncOpenAI(base_url=base_url, api_key=key, organization=account, project=account, http_client=unused)
        headers = {**sdk.default_headers, **sdk.auth_headers}
        self._headers = {name: text for name, text in headers.items() if isinstance(text, str) and text}
        self.base = base_url.rstrip("/")
        self.root = self.base.removesuffix("/v1")  # where vLLM and SGLang have their own paths
        self._timeout_s = endpoint.timeout_s
        parts = urlsplit(self.base)  # once: the lookup takes as long as a call
        self._proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        if self._proxy is not None and not self._proxy.startswith(("http://", "https://")):
            message = f"the proxy of the environment for {self.base} is not of http: {self._proxy.partition('://')[0]}"
            raise InvalidError(message, hint="set HTTP_PROXY or HTTPS_PROXY to an http:// URL, or NO_PROXY to the host")
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self, path: str, body: dict[str, Any] | None = None, *, quick: bool = False
    ) -> bytes | RequestFailed:
        """Return the body of the response to ``POST path``, or without ``body`` to ``GET path``.

        The path is under the base URL, or a whole URL. A ``quick`` call does not use the model.
        """
        url = path if "://" in path else self.base + path
        timeout_s = min(self._timeout_s, PROBE_TIMEOUT_S) if quick else self._timeout_s
        try:
            data = None if body is None else to_json(body)
            async with asyncio.timeout(timeout_s):
                status, pause, content = await self._send("GET" if data is None else "POST", url, data)
        except TimeoutError:
            failure = Failure(Reason.TIMEOUT, f"no complete response within {timeout_s:g} s")
            return RequestFailed(failure, retry=True, billable=True)
        except (aiohttp.ClientError, OSError) as error:
            cause = getattr(error, "os_error", error)  # aiohttp's own message mentions ssl even without TLS
            refused = isinstance(cause, ConnectionRefusedError)
            detail = "connection refused" if refused else getattr(cause, "strerror", None) or error_message(cause)
            failure = Failure(Reason.UNREACHABLE, f"{self.base}: {detail}")
            return RequestFailed(failure, retry=True, billable=not isinstance(error, aiohttp.ClientConnectorError))
        except Exception as error:  # noqa: BLE001 - an engine never raises for errors of a server
            return RequestFailed(Failure(Reason.ENGINE_ERROR, error_message(error)))
        return content if 200 <= status < 300 else refusal(status, content, pause)

    async def _send(self, method: str, url: str, data: bytes | None) -> tuple[int, str, bytes]:
        """Return the status of a response, its ``Retry-After`` and its body, decoded."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The throttle limits the number of connections.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(),
                headers=self._headers,
            )
        content = bytearray()
        async with self._session.request(method, url, data=data, proxy=self._proxy) as response:
            async for part in response.content.iter_any():
                content += part[: MAX_BODY_BYTES + 1 - len(content)]
                if len(content) > MAX_BODY_BYTES:
                    response.close()
                    break
            return response.status, response.headers.get("Retry-After", ""), bytes(content)

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def refusal(status: int, content: bytes, pause: str) -> RequestFailed:
    """Return the failure in a response with an error's status; ``pause`` is its ``Retry-After``."""
    raw = raw_text(content)
    message: Any = None
    with suppress(*PARSE_ERRORS):
        error = (body := json.loads(content)).get("error", body)
        message, parameter = error.get("message"), error.get("param") or ""
        message += f" ({parameter})" if parameter not in message else ""
    detail = f"HTTP {status}: {message if message and isinstance(message, str) else raw}"[:RAW_CHARS]
    if status == 429 or status >= 500 or status in (408, 409):
        reason = {429: Reason.RATE_LIMITED, 408: Reason.TIMEOUT}.get(status, Reason.SERVER_ERROR)
        pause_s = retry_after_s(pause)
        return RequestFailed(Failure(reason, detail, raw), True, pause_s, status, billable=status in _GATEWAY_TIMEOUTS)
    reason = Reason.TOO_LONG if status == 413 or _OVER_CONTEXT.search(raw) else Reason.REFUSED
    return RequestFailed(Failure(reason, detail, raw), status=0 if reason is Reason.TOO_LONG else status)


def raw_text(body: bytes) -> str:
    """Return the beginning of a body, of the length that is stored."""
    return body[: 4 * RAW_CHARS].decode("utf-8", "replace")[:RAW_CHARS]


def read_chat_completion(
    body: bytes, question: Question, max_context: int | None = None
) -> Reply | Failure | RequestFailed:
    """Return the reply to ``question`` in the body of a ``/v1/chat/completions`` response with status 200."""
    raw = raw_text(body)
    if len(body) > MAX_BODY_BYTES:
        return Failure(Reason.UNPARSEABLE, f"the response is larger than {MAX_BODY_BYTES} bytes", raw)
    try:
        data = json.loads(body)
        if isinstance(failed := data.get("error"), dict | str) and failed:
            return _reported(data, failed)
        choice, counts = data["choices"][0], data.get("usage")
        ended = str(choice.get("finish_reason")).casefold()
        if choice.get("error") or re.fullmatch("error|abort|cancel.*|network_error|insufficient_.*", ended):
            return _reported(choice, choice.get("error"))
        usage = _usage(counts)
        if max_context is not None and usage is not None and usage.prompt > max_context:
            detail = f"the prompt has {usage.prompt:.0f} tokens, max_context is {max_context}"
            return Failure(Reason.TOO_LONG, detail, raw)
        truncated = ended in ("length", "max_tokens", "model_length")
        message = choice["message"]
        text, refusal = _text(message.get("content")), message.get("refusal")
        filtered = re.fullmatch("content_filter|safety|refusal|recitation|prohibit.*|blocklist|spii|sensitive", ended)
        if filtered or refusal:
            return Failure(Reason.DECLINED, cut(str(refusal or "content_filter"), RAW_CHARS), raw)
        if not question.labels:
            thinking = str(message.get("reasoning_content") or message.get("reasoning") or "")[:THINKING_CHARS]
            count = _field(counts, "completion_tokens_details", "reasoning_tokens")
            thought = float(count) if isinstance(count, int | float) else None
            return Reply(text, truncated=truncated, usage=usage, thinking=thinking, thinking_tokens=thought)
        first = ((choice.get("logprobs") or {}).get("content") or [{}])[0]
        listed = [(entry["token"], entry["logprob"]) for entry in first.get("top_logprobs") or ()]
        return _readout(listed, question.labels, raw, text, usage)
    except PARSE_ERRORS as error:
        return _unreadable("a chat completion", error, raw)


def read_completions(body: bytes, questions: Sequence[Question], *, usage_sums_cached: bool) -> list[Reply | Failure]:
    """Return the replies to ``questions`` with labels in the body of a ``/v1/completions`` response with status 200.

    With ``usage_sums_cached`` its usage counts the cached tokens of all prompts, else of the last alone.
    """
    raw, count = raw_text(body), len(questions)
    try:
        data = json.loads(body)
        choices = sorted(data["choices"], key=itemgetter("index"))
        if len(choices) != count:
            raise ValueError(f"{len(choices)} choices for {count} prompts")
        total = _usage(data.get("usage"), count, sums_cached=usage_sums_cached)
        usages = total.split(count) if total else [None] * count
        replies = []
        for choice, question, usage in zip(choices, questions, usages, strict=True):
            first = ((choice.get("logprobs") or {}).get("top_logprobs") or [None])[0] or {}
            replies.append(_readout(first.items(), question.labels, raw, _text(choice.get("text")), usage))
        return replies
    except PARSE_ERRORS as error:
        return [_unreadable("a list of completions", error, raw)] * count


def _reported(holder: dict[str, Any], error: Any) -> RequestFailed:
    """Return the failure that a gateway reports with status 200: by its code, else that of the server."""
    code = _field(error, "code")
    status = code if type(code) is int and 400 <= code < 600 else 500
    return refusal(status, json.dumps(holder).encode(), "")


def _unreadable(wanted: str, error: Exception, raw: str) -> Failure:
    """Return the failure of a body that is not what was wanted."""
    problem = next((text for kind, text in _PROBLEMS.items() if isinstance(error, kind)), "{}").format(error)
    if raw.lstrip().startswith("<"):
        problem = "it is HTML or XML; is the URL that of an API, such as http://HOST:8000/v1?"
    return Failure(Reason.UNPARSEABLE, f"the response is not {wanted}: {problem}", raw)


def _text(content: Any) -> str:
    """Return the text of a message: its content, or the text parts of a list of parts; null is empty."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part["type"] == "text")
    if not isinstance(content, str | None):
        raise ValueError(f"content {cut(repr(content), 80)} is not text")
    return content or ""


def _field(value: Any, *names: str) -> Any:
    """Return a field of a field of a JSON object; None where one of them is missing, or no object."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _usage(usage: Any, prompts: int = 1, *, sums_cached: bool = True) -> Usage | None:
    """Return the tokens that the server counted; None where a count is missing or impossible.

    A verdict does not need them, and a budget charges the maximum, where a count of 0 would be free. Cached tokens may
    be missing. Where they are the last prompt's alone, the prompts before it, except the first, had as many.
    """
    reported = _field(usage, "prompt_tokens_details", "cached_tokens")
    counts: list[Any] = [_field(usage, "prompt_tokens"), reported or 0, _field(usage, "completion_tokens")]
    if not all(type(count) in (int, float) and 0 <= count <= _MAX_TOKENS for count in counts):
        return None
    prompt, cached, completion = (math.ceil(count) for count in counts)
    if not 0 < prompt >= cached:
        return None
    if not sums_cached:
        cached = min(cached * max(1, prompts - 1), prompt)
    return Usage(prompt=prompt, cached=None if reported is None else cached, completion=completion)


def _readout(
    listed: Collection[tuple[str, float]], labels: tuple[str, ...], raw: str, text: str, usage: Usage | None
) -> Reply | Failure:
    """Return a reply with the probability of each label as the first token, summed over its spellings in ``listed``.

    A label that is not listed counts as 0: its probability is less than that of the last token listed.
    """
    if not listed:
        advice = "enable top_logprobs (vLLM: --max-logprobs 20), or use a judge with mode `written`"
        return Failure(Reason.NO_LOGPROBS, f"the server sent no log-probabilities; {advice}", raw)
    mass = dict.fromkeys(labels, 0.0)
    by_token = {normalize_token(label): label for label in labels}
    for token, logprob in listed:
        if isinstance(logprob, bool) or not isinstance(logprob, int | float):
            raise ValueError(f"log-probability {cut(repr(logprob), 80)} is not a number")
        if math.isnan(logprob) or logprob > 1e-3:  # slightly over 0 is rounding
            return Failure(Reason.OUT_OF_RANGE, f"log-probability {logprob} of token {token!r}", raw)
        if (label := by_token.get(normalize_token(token))) is not None:
            mass[label] = min(1.0, mass[label] + math.exp(logprob))
    return Reply(text, mass, usage=usage)
