"""Several readouts in one request, where the server is vLLM or SGLang: ``/v1/completions`` with a list of prompts.

A completion endpoint applies no chat template. So the template is learned from the server, once: it renders a
conversation of marks (``/tokenize``, then ``/detokenize``), and the texts are put where the marks stand. The first use
is checked: the server must make the same token ids of our text as of the chat messages. Where anything is otherwise
(another server, an SGLang whose ``/tokenize`` takes no messages yet, a template that trims or moves texts), each
question goes as a chat of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

from structlog import get_logger

from rubricsvc.core.verdict import RAW_CHARS, Reason, Usage
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.engines.http.capabilities import DIALECTS, Dialect, Server
from workers.engines.http.replies import BROKEN, label_mass, usage_of
from workers.engines.http.transport import RequestFailed, Transport

MOST = 64
"""Prompts in one request."""

_MARKS = ("Qsystem0Q", "Quser1Q")
_LISTED = re.compile("Q(?:system|user)([01])Q")

log = get_logger(__name__)

Messages = list[dict[str, str]]


class PromptLists:
    """Whether, and how, one server is asked in lists. What it taught stays: to learn anew, make another."""

    def __init__(self, model: str, server: Server, transport: Transport, *, wanted: bool = True) -> None:
        self._model = model
        self._server = server
        self._transport = transport
        self._wanted = wanted
        self._skeletons: dict[bool, list[str]] = {}
        self._learning = asyncio.Lock()

    async def prompts(self, request: EngineRequest) -> list[str | Failure]:
        """Each question's prompt, or that it is over ``ask.max_context``; none where it cannot be asked in lists."""
        if not self._wanted or not all(question.labels and not question.turns for question in request.questions):
            return []
        async with self._learning:
            skeleton = await self._learned(request)
        if skeleton is None:
            return []
        texts = [_fill(skeleton, request.system, request.shared + question.text) for question in request.questions]
        try:
            return await self._within(texts, request.max_context) if request.max_context is not None else [*texts]
        except (_AwayError, *BROKEN):
            return []  # a question that goes alone is counted by the server

    def body(self, prompts: Sequence[str], top: int) -> dict[str, Any]:
        """The request for these, at most ``MOST``. ``top`` is how many tokens to list with their probabilities."""
        how = {"model": self._model, "max_tokens": 1, "temperature": 0, "logprobs": top}
        return how | self._dialect.bare | {"prompt": [*prompts]}

    def read(self, content: bytes, questions: Sequence[Question]) -> list[Reply | Failure]:
        """The replies in the body of a ``/v1/completions`` response with status 200, in the order of ``questions``."""
        return _read_list(content, questions, all_cached=self._dialect.all_cached)

    def stop(self, why: str) -> None:
        """Ask in lists no more."""
        log.info("the server takes no lists of prompts; questions go alone", model=self._model, why=why)
        self._wanted = False

    async def _learned(self, request: EngineRequest) -> list[str] | None:
        """The template's text around the places; None where there is none that can be used, or not now."""
        with_system = bool(request.system)
        if self._wanted and with_system not in self._skeletons and not self._server.away:
            await self._server.hear()
            if self._server.dialect:
                await self._learn(request)
            elif self._server.heard:
                self._wanted = False
        return self._skeletons.get(with_system) if self._wanted else None

    async def _learn(self, request: EngineRequest) -> None:
        """What a server does wrong ends it, and one that is away is asked again later."""
        began = time.monotonic()
        try:
            self._skeletons[bool(request.system)] = await self._skeleton(request)
        except _AwayError:
            self._server.leave(began)
        except BROKEN as error:
            if self._server.quiet and "chat_template" in str(error):
                self._server.takes_no_options()
                await self._learn(request)
            else:
                self.stop(repr(error))

    async def _within(self, texts: list[str], limit: int) -> list[str | Failure]:
        """The server counts what they share, and then those alone that may be over ``limit``: a token is a byte or
        more."""
        most = [len(text.encode("utf-8", "replace")) for text in texts]
        if max(most) > limit:
            shared = commonprefix(texts)  # noqa: RUF071 - they are no paths
            saved = len(shared.encode("utf-8", "replace")) - await self._count(shared)
            most = [size - saved for size in most]
        doubted = [n for n, size in enumerate(most) if size > limit]
        found: list[str | Failure] = [*texts]
        for n, count in zip(doubted, await asyncio.gather(*(self._count(texts[n]) for n in doubted)), strict=True):
            if count > limit:
                found[n] = Failure(Reason.TOO_LONG, f"{count} tokens are over this judge's max_context of {limit}")
        return found

    async def _count(self, text: str) -> int:
        return len(await self._ids_of(text))

    async def _skeleton(self, request: EngineRequest) -> list[str]:
        marked = await self._ids_of(_messages(_MARKS[0] if request.system else "", _MARKS[1]))
        text = await self._text_of(marked)
        user = request.shared + request.questions[0].text
        expected = await self._ids_of(_messages(request.system, user))
        # A server that puts a text's first token there itself would have it twice.
        for begun in ("", await self._text_of(marked[:1])):
            parts = _LISTED.split(text.removeprefix(begun))
            if parts[1::2] != (["0", "1"] if request.system else ["1"]):
                raise ValueError("its chat template does not show the system and user texts once each")
            if await self._ids_of(_fill(parts, request.system, user)) == expected:
                return parts
        raise ValueError("its chat template changes the texts")

    @property
    def _dialect(self) -> Dialect:
        return self._server.dialect or DIALECTS["vllm"]

    async def _ids_of(self, what: str | Messages) -> list[int]:
        body = (
            self._dialect.bare | {"prompt": what} if isinstance(what, str) else {"messages": what} | self._server.quiet
        )
        ids: list[int] = (await self._post("/tokenize", body))["tokens"]
        return ids

    async def _text_of(self, ids: list[int]) -> str:
        text: str = (await self._post("/detokenize", self._dialect.whole | {"tokens": ids}))[self._dialect.text]
        return text

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        return _said(
            await self._transport.post(self._transport.root + path, {"model": self._model, **body}, quick=True)
        )


class _AwayError(Exception):
    """The server did not answer."""


def _said(content: bytes | RequestFailed) -> Any:
    if isinstance(content, RequestFailed):
        raise _AwayError if content.retry else ValueError(content.failure.detail)
    return json.loads(content)


def _messages(system: str, user: str) -> Messages:
    before = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": user}]


def _fill(parts: list[str], system: str, user: str) -> str:
    filled = parts.copy()
    filled[1::2] = [(system, user)[int(place)] for place in parts[1::2]]
    return "".join(filled)


def _read_list(body: bytes, questions: Sequence[Question], *, all_cached: bool) -> list[Reply | Failure]:
    raw = body[: 4 * RAW_CHARS].decode("utf-8", "replace")[:RAW_CHARS]
    try:
        data = json.loads(body)
        choices = {choice["index"]: choice for choice in data["choices"]}
        if sorted(choices) != list(range(len(questions))):
            raise ValueError(f"{len(data['choices'])} choices for {len(questions)} prompts")
        usage = _share(usage_of(data), len(questions), all_cached)
    except BROKEN as error:
        return [Failure(Reason.UNPARSEABLE, f"the server's reply is no list of completions: {error!r}", raw)] * len(
            questions
        )
    return [_reply(choices[n], question, usage, raw) for n, question in enumerate(questions)]


def _reply(choice: dict[str, Any], question: Question, usage: Usage | None, raw: str) -> Reply | Failure:
    try:
        listed = ((choice.get("logprobs") or {}).get("top_logprobs") or [{}])[0] or {}
        entries = [{"token": token, "logprob": logprob} for token, logprob in listed.items()]
        mass = label_mass(entries, question.labels)
        text = str(choice.get("text") or "")
    except BROKEN as error:
        return Failure(Reason.UNPARSEABLE, f"the server's reply is no completion: {error!r}", raw)
    return Failure(mass.reason, mass.detail, raw) if isinstance(mass, Failure) else Reply(text, mass, usage=usage)


def _share(usage: Usage | None, count: int, all_cached: bool) -> Usage | None:
    """One prompt's share. Where the cached tokens are the last prompt's alone, those before it, but for the first,
    found as much of what they share."""
    if usage is None:
        return None
    cached = usage.cached if all_cached else usage.cached * max(1, count - 1)
    return Usage(
        prompt=usage.prompt / count, cached=min(cached, usage.prompt) / count, completion=usage.completion / count
    )
