"""The cost of calls, and the budget of a job with a cap, which the job sets as ``current_budget``."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

from rubricsvc.core.judge import Price
from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Outcome, Question, Reply, RequestFailed, Send

_TEMPLATE_TOKENS = 256  # tokens that a chat template may add to a conversation


class Budget(Protocol):
    """US dollars for calls: reserved at their maximum before, settled at their cost after."""

    async def reserve(self, max_cost: float, /) -> bool:
        """Reserve ``max_cost``; False where nothing more may be spent. May wait for calls in progress."""

    def settle(self, max_cost: float, cost: float, /) -> None:
        """Replace a reservation of ``max_cost`` by the cost of the finished call."""

    def whole(self, max_cost: float, /) -> AbstractAsyncContextManager[None]:
        """Return a context for a request whose calls cost ``max_cost`` at most."""
        return nullcontext()


@dataclass(eq=False)
class SpendingLimit(Budget):
    """A budget of up to ``limit`` US dollars, of which ``spent`` are used; None: any, or as ``within`` has it."""

    limit: float | None
    spent: float
    within: SpendingLimit | None = None
    exceeded: bool = False
    _held: float = 0.0

    async def reserve(self, max_cost: float, /) -> bool:
        """Reserve the maximum cost of a call; False where it is not covered, and then ``exceeded`` is true."""
        over = self.limit is not None and self.spent + self._held + max_cost > self.limit
        refused = over or (self.within is not None and not await self.within.reserve(max_cost))
        self.exceeded = self.exceeded or refused
        self._held += 0.0 if refused else max_cost
        return not refused

    def settle(self, max_cost: float, cost: float, /) -> None:
        """Replace a reservation by the cost of the finished call."""
        self._held -= max_cost
        self.spent += cost
        if self.within is not None:
            self.within.settle(max_cost, cost)


current_budget: ContextVar[Budget | None] = ContextVar("current_budget", default=None)


def max_cost(request: EngineRequest, questions: tuple[Question, ...], price: Price | None) -> float:
    """Return the maximum cost of a call in US dollars: one token a byte, and replies of full length."""
    if price is None:
        return 0.0
    prompt = completion = 0
    for question in questions:
        texts = [*(message["content"] for message in request.messages(question)), repr(question.schema or "")]
        prompt += sum(len(text.encode("utf-8", "replace")) for text in texts) + _TEMPLATE_TOKENS
        completion += 1 if question.labels else request.sampling.max_tokens
    return (prompt * max(price.prompt, price.cached or 0.0) + completion * price.completion) / 1e6


def request_budget(request: EngineRequest, price: Price | None) -> AbstractAsyncContextManager[None]:
    """Return a context for the calls of one request."""
    budget = current_budget.get()
    if price is None or budget is None:
        return nullcontext()
    return budget.whole(max_cost(request, request.questions, price))


async def charge(send: Send, max_cost: float, price: Price | None) -> Outcome:
    """Return the outcome of ``send`` with its cost, or fail with ``budget`` where its maximum cost is not covered.

    A call whose tokens the server does not count, or that is cut off, costs its maximum; a refusal costs nothing.
    """
    if price is None:
        return await send()
    budget = current_budget.get()
    if budget is not None and not await budget.reserve(max_cost):
        detail = f"${max_cost:.4g}, the maximum cost of this call, exceeds what is left of the budget"
        return RequestFailed(Failure(Reason.BUDGET, detail))
    cost = max_cost
    try:
        outcome = await send()
        if not isinstance(outcome, RequestFailed):
            share = max_cost / len(outcome)
            outcome = [
                replace(reply, usage=reply.usage.model_copy(update={"cost": price.cost(reply.usage)}))
                if isinstance(reply, Reply) and reply.usage
                else reply
                for reply in outcome
            ]
            cost = sum(reply.usage.cost if isinstance(reply, Reply) and reply.usage else share for reply in outcome)
        elif not outcome.billable:
            cost = 0.0
    finally:
        if budget is not None:
            budget.settle(max_cost, cost)
    return outcome
