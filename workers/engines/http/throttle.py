"""What every call to a judge's server passes: a slot, the circuit breaker, pauses, the minute's limits, the budget."""

from __future__ import annotations

import time

from rubricsvc.core.judge import Endpoint
from rubricsvc.core.verdict import Reason, Usage
from workers.engines.base import Reply
from workers.engines.budget import Replies, Send, Weight, charge
from workers.engines.http.breaker import Breaker
from workers.engines.http.limits import Minute, Pause, Slots
from workers.engines.http.transport import RequestFailed, Transport

_LONGEST_RETRY_AFTER_S = 120.0
_TROUBLE = (Reason.RATE_LIMITED, Reason.SERVER_ERROR, Reason.TIMEOUT, Reason.UNREACHABLE)


class Gate:
    """One for an engine, shared by all its asks. Waiting here costs a question none of its retries."""

    def __init__(self, endpoint: Endpoint, transport: Transport, name: str, *, first_pause_s: float) -> None:
        self.slots = Slots(endpoint.concurrency)
        self._price = endpoint.price
        self._pause = Pause()
        self._breaker = Breaker(
            transport.alive, name=name, outage_timeout_s=endpoint.outage_timeout_s, first_pause_s=first_pause_s
        )
        self._requests = Minute(endpoint.requests_per_minute) if endpoint.requests_per_minute else None
        self._tokens = Minute(endpoint.tokens_per_minute) if endpoint.tokens_per_minute else None

    async def call(self, send: Send, weight: Weight) -> Replies | RequestFailed:
        """What ``send`` brings, a call of about this weight."""

        async def limited() -> Replies | RequestFailed:
            await self._pause.over()
            if self._requests:
                await self._requests.take(1)
            taken = await self._tokens.take(weight.tokens) if self._tokens else None
            began = time.monotonic()
            outcome = await charge(send, weight, self._price)
            if self._tokens and taken and (tokens := _tokens_of(outcome)) is not None:
                self._tokens.correct(taken, tokens)
            self._learn(outcome, began)
            return outcome

        async with self.slots.one():
            return await self._breaker.call(limited)

    def _learn(self, outcome: Replies | RequestFailed, began: float) -> None:
        if not isinstance(outcome, RequestFailed):
            self.slots.went_well()
        elif outcome.failure.reason in _TROUBLE:
            self.slots.went_badly(began)
            if outcome.after is not None:
                self._pause.ask(min(outcome.after, _LONGEST_RETRY_AFTER_S))


def _tokens_of(outcome: Replies | RequestFailed) -> float | None:
    """The tokens that the server counted; None where it did not."""
    if isinstance(outcome, RequestFailed):
        return None
    counted = [reply.usage for reply in outcome if isinstance(reply, Reply)]
    return sum(map(_sum, filter(None, counted))) if counted and None not in counted else None


def _sum(usage: Usage) -> float:
    return usage.prompt + usage.completion
