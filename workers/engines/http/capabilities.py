"""What kind of server it is that speaks OpenAI's protocol, as it says itself: some take more than the protocol has."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from workers.engines.http.replies import BROKEN
from workers.engines.http.transport import RequestFailed, Transport

_AGAIN_S = 2.0
"""How soon a server that did not answer is asked again what it offers. One that hangs is left alone for
twice as long as it was waited for."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of server speaks of prompts and tokens, where they differ."""

    bare: dict[str, Any]
    """Asks that nothing is put before a text, such as the token that begins one."""
    whole: dict[str, Any]
    """Asks that no token is left out of a text."""
    text: str
    """The field of ``/detokenize`` that holds the text."""
    all_cached: bool
    """Whether the usage of a list counts the cached tokens of all its prompts, or of the last alone."""


DIALECTS = {
    "vllm": Dialect({"add_special_tokens": False}, {}, "prompt", all_cached=False),
    "sglang": Dialect({}, {"skip_special_tokens": False}, "text", all_cached=True),
}
"""By the ``owned_by`` of their models."""

_QUIET = {"chat_template_kwargs": {"enable_thinking": False}}
"""A hybrid model would begin with its thinking, where a readout looks for the answer. Other templates ignore it; vLLM
refuses it of Mistral's own tokenizers."""


class Server:
    """What one server has said of itself. It stays: to ask anew, make another."""

    def __init__(self, model: str, transport: Transport) -> None:
        self.heard = False  # whether it has said what it is
        self.dialect: Dialect | None = None  # where it is of a kind that is known
        self._model = model
        self._transport = transport
        self._options = True  # until it refuses them
        self._asking = asyncio.Lock()
        self._away_until = 0.0

    @property
    def quiet(self) -> dict[str, Any]:
        """What a request with messages says to a model that is not to think; nothing to servers of other kinds."""
        return _QUIET if self.dialect and self._options else {}

    def takes_no_options(self) -> None:
        """Templates of this model have none."""
        self._options = False

    async def hear(self) -> None:
        """Ask it what it is, unless it has said so or was away a moment ago."""
        if self.heard:
            return
        async with self._asking:
            if not self.heard and not self.away:
                await self._hear()

    @property
    def away(self) -> bool:
        """It did not answer a moment ago, and is left alone."""
        return time.monotonic() < self._away_until

    def leave(self, began: float) -> None:
        """It gave no answer to what was asked of it at ``began`` (`time.monotonic`)."""
        ended = time.monotonic()
        self._away_until = ended + _AGAIN_S * max(1.0, ended - began)

    async def _hear(self) -> None:
        began = time.monotonic()
        content = await self._transport.get("/models")
        owners: list[Any] = []
        if not isinstance(content, RequestFailed):  # which may be a proxy's 404, before a server that is starting
            try:
                owners = [card.get("owned_by") for card in json.loads(content)["data"] if card["id"] == self._model]
                self.dialect = DIALECTS.get(owners[0]) if owners else None
            except BROKEN:
                owners = []
        if owners:
            self.heard = True
        else:
            self.leave(began)
