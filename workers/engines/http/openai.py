"""The engine over HTTP: any server with OpenAI's chat completions (OpenAI, vLLM, SGLang, llama.cpp).

A server's kind is known by its list of models, and its limits by what it refuses. Where it is vLLM or SGLang, several
readouts are one request: ``/v1/completions`` with a list of prompts. That endpoint applies no chat template, so the
template is learned from the server, once: it renders a conversation of placeholders (``/tokenize``, then
``/detokenize``), and the texts replace the placeholders. The result is verified: the server must give our text the same
token ids as the chat messages. Where it does not (an SGLang whose ``/tokenize`` takes no messages yet, a template that
trims or moves texts), each question is a chat request.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from structlog import get_logger

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Outcome, Question, Replies, Reply, RequestFailed
from workers.engines.budget import max_cost, request_budget
from workers.engines.http.client import PARSE_ERRORS, HttpClient, read_chat_completion, read_completions
from workers.engines.http.throttle import Throttle

PROBE_PAUSE_S = 2.0
"""Seconds until a server that did not answer a probe is probed again."""

_NEWER_NAME = re.compile("max_completion_tokens")
_FEWER = re.compile(
    r"log_?probs\b[^{}\[\]]*?(?:at most|less than or equal to|up to|between \d+ and|max\w*\D{0,20}) ?(\d{1,2})\b",
    re.IGNORECASE,
)
"""Servers list 5, 8 or 20 tokens at most, and word the refusal in different ways."""

_OPTIONAL = {
    name: re.compile(rf"\W?\b{name}\b(?![\\'\"]+ *: *-?\d)\W?")  # not our own field, where the error quotes its value
    for name in ("seed", "top_p", "temperature")
}
"""Parameters that a server may refuse, in the order of leaving them out: some models have one temperature only."""

_LEARNING_ROUNDS = 5
"""Refusals of one call that are learned from: servers name one parameter at a time."""

_NO_OPTIONS = re.compile(r"chat_template(?!_kwargs[\\'\"]*: *\{)")
"""But not our own field, where the error quotes the request."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parameters in which servers of one kind differ.

    Attributes:
        no_special_tokens: Adds no token, such as the one that begins a text.
        keep_special_tokens: Leaves out no token of a text.
        usage_sums_cached: Whether the usage of a list counts the cached tokens of all prompts, or of the last alone.
    """

    no_special_tokens: dict[str, Any]
    keep_special_tokens: dict[str, Any]
    usage_sums_cached: bool


DIALECTS = {
    "vllm": Dialect({"add_special_tokens": False}, {}, usage_sums_cached=False),
    "sglang": Dialect({}, {"skip_special_tokens": False}, usage_sums_cached=True),
}
"""By the ``owned_by`` of their models."""

_NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
"""A hybrid model would begin with its thinking, where a readout expects the answer. Other templates ignore it; vLLM
refuses it with Mistral's own tokenizers."""

_PLACEHOLDERS = ("Qsystem0Q", "Quser1Q")
_PLACEHOLDER = re.compile("Q(?:system|user)([01])Q")

log = get_logger(__name__)


class ServerCapabilities:
    """The capabilities of one server: the defaults, until it refuses them. To forget them, make another.

    Where it ``takes_lists``, the texts of its chat template render the prompts of a list.

    Attributes:
        dialect: The kind of the server, where it is known; else lists are in vLLM's, ``list_dialect``.
        probed: Whether the server has named its kind.
        limit_field: Its name of the limit of new tokens.
        template_options: Whether its chat template accepts options.
        refused: The sampling parameters that it refuses. They are not part of a question's fingerprint: that has what
            the judge asks for, and the verdict's detail says that the server's own values applied.
    """

    def __init__(self, model: str, endpoint: Endpoint, client: HttpClient) -> None:
        self.takes_lists = endpoint.prompt_lists
        self.dialect: Dialect | None = None
        self.list_dialect = DIALECTS["vllm"]
        self.probed = False
        self.structured_output = endpoint.structured != "off"
        self.limit_field = "max_tokens"
        self.top_logprobs = 20
        self.template_options = True
        self.refused: tuple[str, ...] = ()
        self.created_at = time.monotonic()
        self.model = model
        self.client = client
        self._probing = asyncio.Lock()
        self._probe_at = 0.0
        self._templates: dict[bool, list[str]] = {}
        self._learning = asyncio.Lock()

    @property
    def no_thinking(self) -> dict[str, Any]:
        """The fields that keep a hybrid model from thinking; none for servers of unknown kind."""
        return _NO_THINKING if self.dialect and self.template_options else {}

    async def probe(self) -> None:
        """Ask the server for its kind, unless it is known or the last probe has just failed."""
        if self.probed:
            return
        async with self._probing:
            if self.probed or time.monotonic() < self._probe_at:
                return
            content = await self.client.call("/models", quick=True)
            try:  # a failure may be a proxy's 404, before a server that is starting
                cards = [] if isinstance(content, RequestFailed) else json.loads(content)["data"]
                owners = [card.get("owned_by") for card in cards if card["id"] == self.model]
                self.dialect = DIALECTS.get(owners[0])
                self.list_dialect = self.dialect or self.list_dialect
                self.probed = True
            except PARSE_ERRORS:
                self._probe_at = time.monotonic() + PROBE_PAUSE_S

    @property
    def accepted(self) -> tuple[object, ...]:
        """What is known of the server's parameters; as long as it is the same, so are the requests."""
        return self.limit_field, self.top_logprobs, self.template_options, self.refused

    def learn(self, refusal: str, texts: Sequence[str]) -> None:
        """Adapt to the message of a refusal.

        A pattern that occurs in the texts of the request is ignored: servers quote the request in their errors. One
        sampling parameter is left out at a time, since a message may name others that are accepted.
        """
        newer_name, fewer, no_options = (
            None if any(map(pattern.search, texts)) else pattern.search(refusal)
            for pattern in (_NEWER_NAME, _FEWER, _NO_OPTIONS)
        )
        if newer_name:  # OpenAI's newer models accept this name only
            self.limit_field = "max_completion_tokens"
        if fewer and int(fewer[1]) > 1:
            self.top_logprobs = min(self.top_logprobs, int(fewer[1]))
        if no_options:
            self.template_options = False
        if newer_name or fewer or no_options:
            return
        quoted = [*texts, *map(json.dumps, texts)]
        for name, pattern in _OPTIONAL.items():
            match = None if name in self.refused else pattern.search(refusal)
            if match and not any(match[0] in text for text in quoted):  # with its quotes: a text may be of temperatures
                self.refused += (name,)
                log.warning("the server refuses a parameter; its own value applies", model=self.model, parameter=name)
                return

    async def list_prompts(self, request: EngineRequest) -> list[str]:
        """Return each question's prompt; an empty list where they have to be asked one by one."""
        if not self.takes_lists or not all(question.labels and not question.turns for question in request.questions):
            return []
        async with self._learning:
            template = await self._template(request)
        if template is None:
            return []
        prompts = [_render(template, request, question) for question in request.questions]
        most = request.max_context
        long = [] if most is None else [one for one in prompts if len(one.encode("utf-8", "replace")) > most]
        try:  # a token is a byte or more; the server counts the tokens of a single question
            counted = await asyncio.gather(*map(self._token_ids, long))
        except PARSE_ERRORS:
            return []
        return [] if most is not None and any(len(ids) > most for ids in counted) else prompts

    def disable_lists(self, reason: str) -> None:
        """Send no more lists."""
        log.info("the server takes no lists of prompts", model=self.model, reason=reason)
        self.takes_lists = False

    async def _template(self, request: EngineRequest) -> list[str] | None:
        """Return the template's text around the places; None where it cannot be used, or not yet."""
        with_system = bool(request.system)
        if with_system in self._templates or not self.takes_lists:
            return self._templates.get(with_system) if self.takes_lists else None
        await self.probe()
        if self.dialect is None:
            self.takes_lists = not self.probed
            return None
        try:
            self._templates[with_system] = await self._verified_template(request)
        except PARSE_ERRORS as error:
            if self.no_thinking and "chat_template" in str(error):
                self.template_options = False
                return await self._template(request)
            self.disable_lists(repr(error))
        return self._templates.get(with_system)

    async def _verified_template(self, request: EngineRequest) -> list[str]:
        """Return the template as the server renders it; a ValueError where it does not render our texts as they are."""
        system, user = _PLACEHOLDERS
        places = EngineRequest(system if request.system else "", "", (Question(user),))
        rendered = await self._token_ids(places.messages(places.questions[0]))
        texts = []
        for ids in (rendered, rendered[:1]):
            reply = await self._post("/detokenize", self.list_dialect.keep_special_tokens | {"tokens": ids})
            texts.append(str(reply["prompt"] if "prompt" in reply else reply["text"]))
        text, first = texts
        example = request.questions[0]
        expected = await self._token_ids(request.messages(example))
        for first_token in ("", first):  # a server that adds a text's first token itself would have it twice
            parts = _PLACEHOLDER.split(text.removeprefix(first_token))
            if parts[1::2] != (["0", "1"] if request.system else ["1"]):
                raise ValueError("the chat template does not render the system and user texts once each")
            if await self._token_ids(_render(parts, request, example)) == expected:
                return parts
        raise ValueError("the chat template changes the texts")

    async def _token_ids(self, source: str | list[dict[str, Any]]) -> list[int]:
        """Return the token ids of a text, or of a chat."""
        if isinstance(source, str):
            body = self.list_dialect.no_special_tokens | {"prompt": source}
        else:
            body = {"messages": source} | self.no_thinking
        ids: list[int] = (await self._post("/tokenize", body))["tokens"]
        return ids

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        content = await self.client.call(self.client.root + path, {"model": self.model, **body}, quick=True)
        if isinstance(content, RequestFailed):
            raise ValueError(content.failure.detail)
        return json.loads(content)


def _render(parts: list[str], request: EngineRequest, question: Question) -> str:
    """Return a template, its parts split by its places, with the system's text and the user's."""
    rendered, texts = parts.copy(), (request.system, request.shared + question.text)
    rendered[1::2] = [texts[int(place)] for place in parts[1::2]]
    return "".join(rendered)


_LOGPROBS = re.compile("log_?prob", re.IGNORECASE)

CAPABILITIES_TTL_S = 600.0
"""How long a server's capabilities are trusted: it may have been restarted, or have been starting."""

_INVALID = (400, 422)
_RETRYABLE = (Reason.UNPARSEABLE, Reason.OUT_OF_RANGE)
"""A body that is broken or holds NaN may be whole next time; missing log-probabilities stay missing."""

_UNSTRUCTURED = "asked again without response_format, since the reply was blank"
_BLANK_LOOP = 32
"""Blanks at the end of a truncated reply that are a loop: grammars allow any number, and the model may never stop."""

_NO_LIST = (Reason.UNPARSEABLE, Reason.NO_LOGPROBS)
"""All replies of a list failed so: the server does not support lists of prompts."""


def _is_blank(reply: Reply) -> bool:
    """Return whether nothing was written, but for thinking up to the limit, or blanks up to the limit."""
    blanks = len(reply.text) - len(reply.text.rstrip())
    if blanks == len(reply.text):
        return not (reply.truncated and reply.thinking)
    return reply.truncated and blanks >= _BLANK_LOOP


class OpenAIEngine:
    """One request for each question, all questions at once: the server's prefix cache shares what they share.

    Where the server takes lists of prompts, the readouts of an `EngineRequest` are one request. Each call passes the
    ``Throttle`` (limits, retries and outages) and the budget, and goes out by the ``HttpClient``.
    """

    def __init__(self, model: str, endpoint: Endpoint, *, first_pause_s: float = 0.5) -> None:
        self._model = model
        self._endpoint = endpoint
        self._client = HttpClient(endpoint)
        probe = partial(self._client.call, "/models", quick=True)
        self.throttle = Throttle(endpoint, probe, name=model, first_pause_s=first_pause_s)
        self._server = ServerCapabilities(model, endpoint, self._client)

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order.

        In a list they are asked in one call, and those that failed one by one: one prompt that is too long fails all.
        """
        async with request_budget(request, self._endpoint.price):
            if time.monotonic() >= self._server.created_at + CAPABILITIES_TTL_S:
                self._server = ServerCapabilities(self._model, self._endpoint, self._client)
            server, questions, answers = self._server, request.questions, dict[int, Reply | Failure]()
            if len(questions) > 1 and (prompts := await server.list_prompts(request)):
                outcome = await self._post(server, request, questions, prompts=prompts)
                if not isinstance(outcome, RequestFailed):
                    answers = {n: reply for n, reply in enumerate(outcome) if isinstance(reply, Reply)}
                    failed = [reply for reply in outcome if isinstance(reply, Failure)]
                    if not answers and all(failure.reason in _NO_LIST for failure in failed):
                        server.disable_lists(failed[0].detail)
                elif outcome.retry or outcome.failure.reason in (Reason.UNAVAILABLE, Reason.BUDGET):
                    return [outcome.failure] * len(questions)
                elif outcome.status in (404, 405, 501):
                    server.disable_lists(outcome.failure.detail)
            alone = [n for n in range(len(questions)) if n not in answers]
            answers |= zip(
                alone, await asyncio.gather(*(self._ask_one(request, questions[n]) for n in alone)), strict=True
            )
            return [answers[n] for n in range(len(questions))]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _ask_one(self, request: EngineRequest, question: Question) -> Reply | Failure:
        # A server without a reasoning parser would apply the schema to the thinking, too.
        structured = self._server.structured_output and question.schema is not None and not request.thinking
        texts, refusal = [message["content"] for message in request.messages(question)], ""
        first: Reply | None = None
        for _ in range(1 + _LEARNING_ROUNDS):
            accepted = self._server.accepted
            outcome = await self._post(self._server, request, (question,), structured=structured and not refusal)
            if not isinstance(outcome, RequestFailed):
                reply = outcome[0]
                blank = isinstance(reply, Reply) and structured and _is_blank(reply)
                if isinstance(reply, Reply) and blank and not refusal and self._endpoint.structured == "auto":
                    first, refusal = reply, "its replies are blank"
                    continue
                if refusal and not (first and blank) and self._server.structured_output:
                    log.warning("response_format is left out from now on", model=self._model, reason=refusal)
                    self._server.structured_output = False
                return reply.after(first, _UNSTRUCTURED) if first and isinstance(reply, Reply) else reply
            failure, status = outcome.failure, outcome.status
            if status not in _INVALID:
                break
            if self._server.accepted == accepted:  # else another call has learned from its refusal
                self._server.learn(failure.detail, texts)
            if self._server.accepted == accepted:
                if refusal or not structured:
                    break
                refusal = failure.detail
        if first:
            return replace(first, note=f"{_UNSTRUCTURED}: {failure.reason} {failure.detail}")
        refused = status and failure.reason is Reason.REFUSED
        if question.labels and refused and _LOGPROBS.search(failure.detail):
            return replace(failure, reason=Reason.NO_LOGPROBS)
        return failure

    async def _post(
        self,
        server: ServerCapabilities,
        request: EngineRequest,
        questions: tuple[Question, ...],
        *,
        structured: bool = False,
        prompts: Sequence[str] = (),
    ) -> Outcome:
        """Ask one question, or all in one call where they have ``prompts``, when the throttle lets it."""
        kind, sampling = server.list_dialect, request.sampling

        async def send() -> Outcome:
            await self._server.probe()  # the server may have come up while this call waited
            start, left_out = time.perf_counter(), self._server.refused
            if prompts:
                body = {"model": self._model, "max_tokens": 1, "temperature": 0, "logprobs": server.top_logprobs}
                body |= kind.no_special_tokens | {"prompt": prompts}
            else:
                question, limit = questions[0], self._server.limit_field
                body = {"model": self._model, "messages": request.messages(question)}
                if not request.thinking:
                    body |= self._server.no_thinking
                if question.labels:  # only the log-probabilities matter, not the token that is sampled
                    body |= {limit: 1, "logprobs": True, "top_logprobs": self._server.top_logprobs}
                    wanted: dict[str, float] = {"temperature": 0}
                else:
                    body[limit], wanted = sampling.max_tokens, {"temperature": sampling.temperature}
                    wanted |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
                    wanted |= {"seed": sampling.seed + question.sample} if sampling.seed is not None else {}
                body |= {name: value for name, value in wanted.items() if name not in left_out}
                left_out = () if question.labels else tuple(name for name in left_out if name in wanted)
                if structured:
                    schema = {"name": "verdict", "strict": True, "schema": question.schema}
                    body["response_format"] = {"type": "json_schema", "json_schema": schema}
            response = await self._client.call("/completions" if prompts else "/chat/completions", body)
            if isinstance(response, RequestFailed):
                return response
            if prompts:
                replies = read_completions(response, questions, usage_sums_cached=kind.usage_sums_cached)
            else:
                reply = read_chat_completion(response, questions[0], request.max_context)
                if isinstance(reply, Failure):
                    reply = RequestFailed(reply, retry=reply.reason in _RETRYABLE)
                if isinstance(reply, RequestFailed):
                    return replace(reply, billable=True)
                note = f"sampled without {', '.join(left_out)}, which the server refuses" if left_out else ""
                replies = [replace(reply, note=note)]
            took = time.perf_counter() - start
            return [replace(reply, latency_s=took) if isinstance(reply, Reply) else reply for reply in replies]

        return await self.throttle.call(send, max_cost(request, questions, self._endpoint.price))
