"""Several readouts in one request, where the server is vLLM or SGLang: ``/v1/completions`` with a list of prompts.

A completion endpoint applies no chat template. So the template is learned from the server, once: it renders a
conversation of placeholders (``/tokenize``, then ``/detokenize``), and the texts replace the placeholders. The result
is verified: the server must give our text the same token ids as the chat messages. Where it does not (another server,
an SGLang whose ``/tokenize`` takes no messages yet, a template that trims or moves texts), each question is a chat
request.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

from structlog import get_logger

from workers.engines.base import EngineRequest, RequestFailed, chat_messages
from workers.engines.http.capabilities import DIALECTS, Dialect, ServerCapabilities
from workers.engines.http.replies import PARSE_ERRORS

_PLACEHOLDERS = ("Qsystem0Q", "Quser1Q")
_PLACEHOLDER = re.compile("Q(?:system|user)([01])Q")

log = get_logger(__name__)


class PromptLists:
    """Whether one server takes lists of prompts (``enabled``), and the chat template to render them."""

    def __init__(self, server: ServerCapabilities, *, enabled: bool = True) -> None:
        self._server = server
        self.enabled = enabled
        self._templates: dict[bool, list[str]] = {}
        self._learning = asyncio.Lock()

    @property
    def dialect(self) -> Dialect:
        """The server's dialect; vLLM's where it is unknown."""
        return self._server.dialect or DIALECTS["vllm"]

    async def prompts(self, request: EngineRequest) -> list[str]:
        """Return each question's prompt; an empty list where they have to be asked one by one."""
        if not self.enabled or not all(question.labels and not question.turns for question in request.questions):
            return []
        async with self._learning:
            template = await self._template(request)
        if template is None:
            return []
        prompts = [_render(template, request.system, *request.turns(question)) for question in request.questions]
        try:
            fit = await asyncio.gather(*(self._fits(prompt, request.max_context) for prompt in prompts))
        except PARSE_ERRORS:
            return []
        return prompts if all(fit) else []  # the server counts the tokens of a single question

    def body(self, prompts: Sequence[str]) -> dict[str, Any]:
        """Return the JSON body for ``prompts``."""
        options = {"max_tokens": 1, "temperature": 0, "logprobs": self._server.top_logprobs}
        return {"model": self._server.model, **options, **self.dialect.no_special_tokens, "prompt": [*prompts]}

    def disable(self, reason: str) -> None:
        """Send no more lists."""
        log.info("the server takes no lists of prompts", model=self._server.model, reason=reason)
        self.enabled = False

    async def _template(self, request: EngineRequest) -> list[str] | None:
        """Return the template's text around the places; None where it cannot be used, or not yet."""
        with_system, server = bool(request.system), self._server
        if with_system in self._templates or not self.enabled:
            return self._templates.get(with_system) if self.enabled else None
        await server.probe()
        if server.dialect is None:
            self.enabled = not server.probed
            return None
        try:
            self._templates[with_system] = await self._verified_template(request)
        except PARSE_ERRORS as error:
            if server.no_thinking and "chat_template" in str(error):
                server.template_options = False
                return await self._template(request)
            self.disable(repr(error))
        return self._templates.get(with_system)

    async def _fits(self, prompt: str, max_context: int | None) -> bool:
        if max_context is None or len(prompt.encode("utf-8", "replace")) <= max_context:  # a token is a byte or more
            return True
        return len(await self._token_ids(prompt)) <= max_context

    async def _verified_template(self, request: EngineRequest) -> list[str]:
        system, user = _PLACEHOLDERS
        rendered = await self._token_ids(chat_messages(system if request.system else "", [user]))
        text = await self._text(rendered)
        turns = request.turns(request.questions[0])
        expected = await self._token_ids(chat_messages(request.system, turns))
        # A server that adds a text's first token itself would have it twice.
        for first_token in ("", await self._text(rendered[:1])):
            parts = _PLACEHOLDER.split(text.removeprefix(first_token))
            if parts[1::2] != (["0", "1"] if request.system else ["1"]):
                raise ValueError("the chat template does not render the system and user texts once each")
            if await self._token_ids(_render(parts, request.system, *turns)) == expected:
                return parts
        raise ValueError("the chat template changes the texts")

    async def _token_ids(self, source: str | list[dict[str, str]]) -> list[int]:
        if isinstance(source, str):
            body = self.dialect.no_special_tokens | {"prompt": source}
        else:
            body = {"messages": source} | self._server.no_thinking
        ids: list[int] = (await self._post("/tokenize", body))["tokens"]
        return ids

    async def _text(self, ids: list[int]) -> str:
        body = self.dialect.keep_special_tokens | {"tokens": ids}
        reply = await self._post("/detokenize", body)
        return str(reply["prompt"] if "prompt" in reply else reply["text"])

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        client = self._server.client
        content = await client.call(client.root + path, {"model": self._server.model, **body}, quick=True)
        if isinstance(content, RequestFailed):
            raise ValueError(content.failure.detail)
        return json.loads(content)


def _render(parts: list[str], system: str, user: str) -> str:
    rendered = parts.copy()
    rendered[1::2] = [(system, user)[int(place)] for place in parts[1::2]]
    return "".join(rendered)
