"""Who pays for a call. A job with a cap puts its budget where the engines find it; without one nothing is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

from rubricsvc.core.judge import Price
from rubricsvc.core.verdict import Reason, Usage
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.engines.http.transport import RequestFailed

Replies = list[Reply | Failure]
Send = Callable[[], Awaitable[Replies | RequestFailed]]

_OVERHEAD = 256
"""Tokens that a chat template may add to a conversation."""


class Budget(Protocol):
    """US dollars for calls: reserved at their worst before, settled at what they came to after."""

    async def reserve(self, worst: float) -> bool:
        """Set this much aside; False where nothing more may be spent. It may wait for calls under way."""
        ...

    def settle(self, worst: float, spent: float) -> None:
        """The call that ``worst`` was reserved for has ended, and cost ``spent``."""
        ...


current_budget: ContextVar[Budget | None] = ContextVar("current_budget", default=None)


@dataclass(frozen=True, slots=True)
class Weight:
    """How much a call may be: about how many ``tokens``, and how many dollars at the ``worst``."""

    tokens: int
    worst: float = 0.0

    @classmethod
    def of(cls, request: EngineRequest, questions: tuple[Question, ...], price: Price | None) -> Weight:
        """About four characters are a token. At the worst each byte is one, and replies are as long as they may be."""
        tokens, worst = 0, 0.0
        for question in questions:
            texts = (request.system, request.shared, question.text, *question.turns)
            reply = 1 if question.labels else request.sampling.max_tokens
            tokens += sum(map(len, texts)) // 4 + reply
            if price:
                size = sum(len(text.encode("utf-8", "replace")) for text in (*texts, repr(question.schema or "")))
                worst += price.max_cost(size + _OVERHEAD, reply)
        return cls(tokens, worst)


async def charge(send: Send, weight: Weight, price: Price | None) -> Replies | RequestFailed:
    """What ``send`` brings, with its cost; a ``budget`` miss where the budget has not enough for its worst.

    What the server does not count, and a call that is cut off, costs its worst; a refusal costs nothing.
    """
    if price is None:
        return await send()
    budget = current_budget.get()
    if budget is None:
        return _with_costs(await send(), price)
    if not await budget.reserve(weight.worst):
        return RequestFailed(
            Failure(Reason.BUDGET, f"the job's budget has no ${weight.worst:.4g} left, which this may cost")
        )
    spent = weight.worst
    try:
        outcome = _with_costs(await send(), price)
        spent = _cost(outcome, weight.worst)
    finally:
        budget.settle(weight.worst, spent)
    return outcome


def _with_costs(outcome: Replies | RequestFailed, price: Price) -> Replies | RequestFailed:
    if isinstance(outcome, RequestFailed):
        return outcome
    return [
        replace(reply, usage=_priced(reply.usage, price)) if isinstance(reply, Reply) and reply.usage else reply
        for reply in outcome
    ]


def _priced(usage: Usage, price: Price) -> Usage:
    return usage.model_copy(update={"cost": price.cost(usage.prompt, usage.completion, usage.cached)})


def _cost(outcome: Replies | RequestFailed, worst: float) -> float:
    if isinstance(outcome, RequestFailed):
        return worst if outcome.worked else 0.0
    each = worst / len(outcome)
    return sum(reply.usage.cost if isinstance(reply, Reply) and reply.usage else each for reply in outcome)
