"""The engine over HTTP: any server that speaks OpenAI's chat completions (OpenAI, vLLM, SGLang, llama.cpp)."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, cycle
from typing import Any

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.engines.budget import Replies, Send, Weight
from workers.engines.http.capabilities import Server
from workers.engines.http.prompt_lists import MOST, PromptLists
from workers.engines.http.replies import read_reply
from workers.engines.http.throttle import Gate
from workers.engines.http.transport import RequestFailed, Transport

_LONGEST_PAUSE_S = 8.0
_PROBABILITIES = re.compile("log_?prob", re.IGNORECASE)
_FEWER = re.compile(
    r"log_?probs\b[^{}\[\]]*?(?:at most|less than or equal to|up to|between \d+ and|max\w*\D{0,20}) ?(\d{1,2})\b",
    re.IGNORECASE,
)
"""Servers list 5, 8 or 20 tokens at most, and say it in their words."""

_NEWER_NAME = re.compile("max_completion_tokens")
_NO_OPTIONS = re.compile(r"chat_template(?!_kwargs['\"]*: *\{)")
"""And not our own field, shown to us."""

_FRESH_S = 600.0
"""How long what a server has taught is held for true: it may have been started again, or have been starting."""

_NO_LIST = (Reason.UNPARSEABLE, Reason.NO_LOGPROBS)
"""All of a list failed so: the server does not do lists as we ask for them."""

_log = logging.getLogger(__name__)


@dataclass
class _Manners:
    """How the server is asked, until it teaches otherwise."""

    server: Server
    lists: PromptLists
    structured: bool = True  # until it refuses response_format
    limit_name: str = "max_tokens"  # until it wants the newer name
    top: int = 20  # tokens to list, until it takes fewer
    since: float = field(default_factory=time.monotonic)


class OpenAIEngine:
    """One request per question, all questions of an ask at once: the server's prefix cache shares what they share.
    Where the server takes lists of prompts, an ask's readouts are one request.

    Retries are made here and not in the SDK, which knows nothing of a 200 whose body is broken. How many requests are
    under way, and when, is the ``Gate``'s to say.
    """

    def __init__(self, model: str, endpoint: Endpoint, *, first_pause_s: float = 0.5) -> None:
        self._model = model
        self._max_retries = endpoint.max_retries
        self._price = endpoint.price
        self._first_pause_s = first_pause_s
        self._transport = Transport(endpoint)
        self._gate = Gate(endpoint, self._transport, model, first_pause_s=first_pause_s)
        self._in_lists = endpoint.prompt_lists
        self._manners = self._unlearned()

    def _unlearned(self) -> _Manners:
        server = Server(self._model, self._transport)
        return _Manners(server, PromptLists(self._model, server, self._transport, wanted=self._in_lists))

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        if time.monotonic() >= self._manners.since + _FRESH_S:
            self._manners = self._unlearned()
        lists = self._manners.lists
        if len(request.questions) < 2 or not (prompts := await lists.prompts(request)):
            return await self._each(request, request.questions)
        pairs = [
            (question, text) for question, text in zip(request.questions, prompts, strict=True) if isinstance(text, str)
        ]
        parts = [zip(*pairs[n : n + MOST], strict=True) for n in range(0, len(pairs), MOST)]
        answers = chain.from_iterable(await asyncio.gather(*(self._list(lists, request, *part) for part in parts)))
        return [prompt if isinstance(prompt, Failure) else next(answers) for prompt in prompts]

    async def _each(self, request: EngineRequest, questions: Iterable[Question]) -> list[Reply | Failure]:
        return list(await asyncio.gather(*(self._one(request, question) for question in questions)))

    async def _list(
        self, lists: PromptLists, request: EngineRequest, questions: tuple[Question, ...], prompts: tuple[str, ...]
    ) -> list[Reply | Failure]:
        """What a list cannot bring is asked alone: one prompt that is too long has all refused."""
        body = lists.body(prompts, self._manners.top)

        async def send() -> Replies | RequestFailed:
            start = time.perf_counter()
            content = await self._transport.post("/completions", body)
            if isinstance(content, RequestFailed):
                return content
            took = time.perf_counter() - start
            read = lists.read(content, questions)
            return [replace(reply, latency_s=took) if isinstance(reply, Reply) else reply for reply in read]

        outcome = await self._persist(send, Weight.of(request, questions, self._price))
        if isinstance(outcome, RequestFailed):
            if outcome.retry or outcome.failure.reason in (Reason.UNAVAILABLE, Reason.BUDGET):
                return [outcome.failure] * len(questions)
            if outcome.status in (404, 405, 501):
                lists.stop(outcome.failure.detail)
            return await self._each(request, questions)
        failed = {n: reply for n, reply in enumerate(outcome) if isinstance(reply, Failure)}
        if len(failed) == len(questions) and all(failure.reason in _NO_LIST for failure in failed.values()):
            lists.stop(failed[0].detail)
        for n, reply in zip(failed, await self._each(request, [questions[n] for n in failed]), strict=True):
            outcome[n] = reply
        return outcome

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _one(self, request: EngineRequest, question: Question) -> Reply | Failure:
        # A server without a reasoning parser would hold the thinking to the schema, too.
        structured = self._manners.structured and question.schema is not None and not request.thinking
        outcome = await self._chat(request, question, structured)
        if (
            isinstance(outcome, RequestFailed)
            and outcome.status in (400, 422)
            and self._learns(outcome, request, question)
        ):
            outcome = await self._chat(request, question, structured)
        if isinstance(outcome, RequestFailed) and outcome.status in (400, 422) and structured:
            plain = await self._chat(request, question, structured=False)
            if not isinstance(plain, RequestFailed):
                _log.warning("%s refuses response_format and is asked without: %s", self._model, outcome.failure.detail)
                self._manners.structured = False
                outcome = plain
        if not isinstance(outcome, RequestFailed):
            return outcome[0]
        if (
            question.labels
            and outcome.status
            and outcome.failure.reason is Reason.REFUSED
            and _PROBABILITIES.search(outcome.failure.detail)
        ):
            return replace(outcome.failure, reason=Reason.NO_LOGPROBS)
        return outcome.failure

    async def _chat(self, request: EngineRequest, question: Question, structured: bool) -> Replies | RequestFailed:
        async def send() -> Replies | RequestFailed:
            await self._manners.server.hear()  # what is there may have come up while this waited
            body = self._body(request, question, structured)
            start = time.perf_counter()
            content = await self._transport.post("/chat/completions", body)
            if isinstance(content, RequestFailed):
                return content
            reply = read_reply(content, question, request.max_context)
            if isinstance(reply, Failure):
                # A body that is broken or holds NaN may be whole next time; missing log-probabilities stay missing.
                return RequestFailed(
                    reply, retry=reply.reason in (Reason.UNPARSEABLE, Reason.OUT_OF_RANGE), worked=True
                )
            return [replace(reply, latency_s=time.perf_counter() - start)]

        return await self._persist(send, Weight.of(request, (question,), self._price))

    async def _persist(self, send: Send, weight: Weight) -> Replies | RequestFailed:
        for attempt in range(self._max_retries + 1):
            outcome = await self._gate.call(send, weight)
            if not isinstance(outcome, RequestFailed) or not outcome.retry or attempt == self._max_retries:
                break
            if outcome.after is None:  # else all wait at the gate
                pause = min(_LONGEST_PAUSE_S, self._first_pause_s * 2**attempt)
                await asyncio.sleep(pause * random.uniform(0.75, 1.0))
        return outcome

    def _body(self, request: EngineRequest, question: Question, structured: bool) -> dict[str, Any]:
        messages = [{"role": "system", "content": request.system}] if request.system else []
        turns = (request.shared + question.text, *question.turns)
        messages += [{"role": role, "content": turn} for role, turn in zip(cycle(("user", "assistant")), turns)]
        body: dict[str, Any] = {"model": self._model, "messages": messages}
        if not request.thinking:
            body |= self._manners.server.quiet
        if question.labels:  # the log-probabilities are asked for; which token is drawn does not matter
            return body | {
                self._manners.limit_name: 1,
                "temperature": 0,
                "logprobs": True,
                "top_logprobs": self._manners.top,
            }
        sampling = request.sampling
        body |= {self._manners.limit_name: sampling.max_tokens, "temperature": sampling.temperature}
        if sampling.top_p < 1:
            body["top_p"] = sampling.top_p
        if sampling.seed is not None:
            body["seed"] = sampling.seed + question.sample
        if structured:
            schema = {"name": "verdict", "strict": True, "schema": question.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _learns(self, miss: RequestFailed, request: EngineRequest, question: Question) -> bool:
        """Whether the refusal says how to ask instead; another question may have learned it just now.

        What the request itself says may only be shown to us again.
        """
        texts = "\n".join((request.system, request.shared + question.text, *question.turns))

        def told(words: re.Pattern[str]) -> re.Match[str] | None:
            return None if words.search(texts) else words.search(miss.failure.detail)

        newer, fewer, no_options = map(told, (_NEWER_NAME, _FEWER, _NO_OPTIONS))
        if newer:  # OpenAI's newer models take this name only
            self._manners.limit_name = "max_completion_tokens"
        if fewer and int(fewer[1]) > 1:
            self._manners.top = min(self._manners.top, int(fewer[1]))
        if no_options:
            self._manners.server.takes_no_options()
        return bool(newer or fewer or no_options)
