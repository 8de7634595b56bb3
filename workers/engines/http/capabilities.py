"""What a server accepts: its kind, by its list of models, and the parameters that it has refused so far."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workers.engines.base import RequestFailed
from workers.engines.http.client import HttpClient
from workers.engines.http.replies import PARSE_ERRORS

PROBE_PAUSE_S = 2.0
"""Seconds until a server that did not answer a probe is probed again."""

_NEWER_NAME = re.compile("max_completion_tokens")
_FEWER = re.compile(
    r"log_?probs\b[^{}\[\]]*?(?:at most|less than or equal to|up to|between \d+ and|max\w*\D{0,20}) ?(\d{1,2})\b",
    re.IGNORECASE,
)
"""Servers list 5, 8 or 20 tokens at most, and word the refusal in different ways."""

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


class ServerCapabilities:
    """The capabilities of one server: the defaults, until it refuses them. To forget them, make another.

    Attributes:
        dialect: The kind of the server, where it is known.
        probed: Whether the server has named its kind.
        limit_field: Its name of the limit of new tokens.
        template_options: Whether its chat template accepts options.
    """

    def __init__(self, model: str, client: HttpClient) -> None:
        self.dialect: Dialect | None = None
        self.probed = False
        self.structured_output = True
        self.limit_field = "max_tokens"
        self.top_logprobs = 20
        self.template_options = True
        self.created_at = time.monotonic()
        self.model = model
        self.client = client
        self._probing = asyncio.Lock()
        self._probe_at = 0.0

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
                self.probed = True
            except PARSE_ERRORS:
                self._probe_at = time.monotonic() + PROBE_PAUSE_S

    def learn(self, refusal: str, texts: Sequence[str]) -> bool:
        """Adapt to the message of a refusal, and return whether the request may now succeed.

        A pattern that occurs in the texts of the request is ignored: servers quote the request in their errors.
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
        return bool(newer_name or fewer or no_options)
