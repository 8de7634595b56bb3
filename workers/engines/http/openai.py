"""The engine over HTTP: any server with OpenAI's chat completions (OpenAI, vLLM, SGLang, llama.cpp)."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

from structlog import get_logger

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Outcome, Question, Replies, Reply, RequestFailed
from workers.engines.budget import CallEstimate
from workers.engines.http.breaker import Breaker
from workers.engines.http.capabilities import ServerCapabilities
from workers.engines.http.client import HttpClient
from workers.engines.http.prompt_lists import PromptLists
from workers.engines.http.replies import read_chat_completion, read_completions
from workers.engines.http.throttle import Throttle

_LOGPROBS = re.compile("log_?prob", re.IGNORECASE)

CAPABILITIES_TTL_S = 600.0
"""How long a server's capabilities are trusted: it may have been restarted, or have been starting."""

_RETRYABLE = (Reason.UNPARSEABLE, Reason.OUT_OF_RANGE)
"""A body that is broken or holds NaN may be whole next time; missing log-probabilities stay missing."""

_NO_LIST = (Reason.UNPARSEABLE, Reason.NO_LOGPROBS)
"""All replies of a list failed so: the server does not support lists of prompts."""

log = get_logger(__name__)


class OpenAIEngine:
    """One request for each question, all questions at once: the server's prefix cache shares what they share.

    Where the server takes lists of prompts, the readouts of an `EngineRequest` are one request. Each call passes the
    ``Throttle`` (limits and retries), the ``Breaker`` (outages) and the budget, and goes out by the ``HttpClient``.
    """

    def __init__(self, model: str, endpoint: Endpoint, *, first_pause_s: float = 0.5) -> None:
        self._model = model
        self._endpoint = endpoint
        self._client = HttpClient(endpoint)
        timeout_s = endpoint.outage_timeout_s
        breaker = Breaker(self._client.is_alive, name=model, outage_timeout_s=timeout_s, first_pause_s=first_pause_s)
        self.throttle = Throttle(endpoint, breaker, first_pause_s=first_pause_s)
        self._forget_capabilities()

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order."""
        if time.monotonic() >= self._server.created_at + CAPABILITIES_TTL_S:
            self._forget_capabilities()
        lists = self.lists
        if len(request.questions) > 1 and (prompts := await lists.prompts(request)):
            return await self._ask_list(lists, request, prompts)
        return await self._ask_each(request, request.questions)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _forget_capabilities(self) -> None:
        self._server = ServerCapabilities(self._model, self._client)
        self.lists = PromptLists(self._server, enabled=self._endpoint.prompt_lists)

    async def _ask_each(self, request: EngineRequest, questions: Iterable[Question]) -> Replies:
        return list(await asyncio.gather(*(self._ask_one(request, question) for question in questions)))

    async def _ask_list(self, lists: PromptLists, request: EngineRequest, prompts: list[str]) -> Replies:
        """Ask in one call, and those that failed one by one: one prompt that is too long fails the whole list."""
        questions = request.questions

        def read(content: bytes) -> Replies:
            return read_completions(content, questions, usage_sums_cached=lists.dialect.usage_sums_cached)

        outcome = await self._post("/completions", lambda: lists.body(prompts), read, request, questions)
        if isinstance(outcome, RequestFailed):
            if outcome.retry or outcome.failure.reason in (Reason.UNAVAILABLE, Reason.BUDGET):
                return [outcome.failure] * len(questions)
            if outcome.status in (404, 405, 501):
                lists.disable(outcome.failure.detail)
            return await self._ask_each(request, questions)
        failed = {n: reply for n, reply in enumerate(outcome) if isinstance(reply, Failure)}
        if len(failed) == len(questions) and all(failure.reason in _NO_LIST for failure in failed.values()):
            lists.disable(failed[0].detail)
        for n, reply in zip(failed, await self._ask_each(request, [questions[n] for n in failed]), strict=True):
            outcome[n] = reply
        return outcome

    async def _ask_one(self, request: EngineRequest, question: Question) -> Reply | Failure:
        # A server without a reasoning parser would apply the schema to the thinking, too.
        structured = self._server.structured_output and question.schema is not None and not request.thinking
        outcome = await self._chat(request, question, structured)
        if _is_invalid(outcome) and self._server.learn(outcome.failure.detail, request.texts(question)):
            outcome = await self._chat(request, question, structured)
        if _is_invalid(outcome) and structured:
            plain = await self._chat(request, question, structured=False)
            if not isinstance(plain, RequestFailed):
                log.warning("the server refuses response_format", model=self._model, error=outcome.failure.detail)
                self._server.structured_output = False
                outcome = plain
        if not isinstance(outcome, RequestFailed):
            return outcome[0]
        failure = outcome.failure
        refused = outcome.status and failure.reason is Reason.REFUSED
        if question.labels and refused and _LOGPROBS.search(failure.detail):
            return replace(failure, reason=Reason.NO_LOGPROBS)
        return failure

    async def _chat(self, request: EngineRequest, question: Question, structured: bool) -> Outcome:
        def read(content: bytes) -> Outcome:
            reply = read_chat_completion(content, question, request.max_context)
            if isinstance(reply, Failure):
                return RequestFailed(reply, retry=reply.reason in _RETRYABLE, billable=True)
            return [reply]

        body = partial(self._body, request, question, structured)
        return await self._post("/chat/completions", body, read, request, (question,))

    async def _post(
        self,
        path: str,
        body: Callable[[], dict[str, Any]],
        read: Callable[[bytes], Outcome],
        request: EngineRequest,
        questions: tuple[Question, ...],
    ) -> Outcome:
        async def send() -> Outcome:
            await self._server.probe()  # the server may have come up while this call waited
            start = time.perf_counter()
            response = await self._client.call(path, body())
            outcome = response if isinstance(response, RequestFailed) else read(response)
            if isinstance(outcome, RequestFailed):
                return outcome
            took = time.perf_counter() - start
            return [replace(reply, latency_s=took) if isinstance(reply, Reply) else reply for reply in outcome]

        return await self.throttle.call(send, CallEstimate.of(request, questions, self._endpoint.price))

    def _body(self, request: EngineRequest, question: Question, structured: bool) -> dict[str, Any]:
        server = self._server
        body: dict[str, Any] = {"model": self._model, "messages": request.messages(question)}
        if not request.thinking:
            body |= server.no_thinking
        if question.labels:  # only the log-probabilities matter, not the token that is sampled
            options = {"temperature": 0, "logprobs": True, "top_logprobs": server.top_logprobs}
            return body | {server.limit_field: 1} | options
        sampling = request.sampling
        body |= {server.limit_field: sampling.max_tokens, "temperature": sampling.temperature}
        if sampling.top_p < 1:
            body["top_p"] = sampling.top_p
        if sampling.seed is not None:
            body["seed"] = sampling.seed + question.sample
        if structured:
            schema = {"name": "verdict", "strict": True, "schema": question.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


def _is_invalid(outcome: Outcome) -> TypeGuard[RequestFailed]:
    return isinstance(outcome, RequestFailed) and outcome.status in (400, 422)
