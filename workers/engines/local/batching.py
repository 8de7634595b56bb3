"""Asks that wait for a model in this process, and which of them are answered together."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Event

from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Reply
from workers.engines.local.models import Loaded

CLOSED = Failure(Reason.ENGINE_ERROR, "the engine was closed")

_PADDING = 0.2
"""The most of a batch that may be padding."""


class PendingRequest:
    """An ask that waits for its ``answer``. ``stop`` is set when nobody waits any more.

    After ``prepare``: ``rows`` are the token ids of each question's conversation, ``shared`` how many first tokens all
    have in common, ``asked`` the questions to put to the model and ``found`` those that were refused, by place.
    """

    def __init__(self, request: EngineRequest) -> None:
        self.ask = request
        self.stop = Event()
        self.answer: Future[list[Reply | Failure]] = Future()
        self.found: dict[int, Reply | Failure] = {}
        self.prepared = False

    def prepare(self, loaded: Loaded) -> None:
        """Tokenise; where it raises, the ask cannot be put to this model."""
        request = self.ask
        turns = [(request.shared + question.text, *question.turns) for question in request.questions]
        self.limit = min(loaded.context, request.max_context or loaded.context)
        self.rows = loaded.conversation.encode(request.system, turns, thinking=request.thinking)
        pairs = enumerate(zip(request.questions, self.rows, strict=True))
        refusals = {i: loaded.conversation.refusal(question, row, self.limit) for i, (question, row) in pairs}
        self.found = {i: refusal for i, refusal in refusals.items() if refusal}
        self.asked = [i for i in refusals if i not in self.found]
        self.shared = shared_length([self.rows[i] for i in self.asked])
        self.prefix = self.rows[self.asked[0]][: self.shared] if self.asked else []
        self.prepared = True

    @property
    def writes(self) -> bool:
        return any(not self.ask.questions[i].labels for i in self.asked)

    @property
    def size(self) -> int:
        """Tokens to read."""
        return self.shared + sum(len(self.rows[i]) - self.shared for i in self.asked)

    def finish(self) -> None:
        """Give the answer to whoever waits for it."""
        with suppress(InvalidStateError):  # nobody does any more
            self.answer.set_result([self.found.get(i, CLOSED) for i in range(len(self.ask.questions))])

    def give_up(self, failure: Failure) -> None:
        """The same failure for every question."""
        self.found = dict.fromkeys(range(len(self.ask.questions)), failure)


def take(waiting: list[PendingRequest], budget: dict[bool, int]) -> list[PendingRequest]:
    """Out of ``waiting`` (which must not be empty): the oldest, and those that can be read beside it.

    They are of one kind and of similar length, and have together at most ``budget[writes]`` tokens.
    """
    oldest = waiting.pop(0)
    batch, total, longest = [oldest], oldest.size, oldest.size
    for other in list(waiting):
        widest = max(longest, other.size)
        padded = widest * (len(batch) + 1)
        if (
            other.writes == oldest.writes
            and padded <= budget[oldest.writes]
            and total + other.size >= (1 - _PADDING) * padded
        ):
            waiting.remove(other)
            batch.append(other)
            total, longest = total + other.size, widest
    return batch


def shared_length(rows: list[list[int]]) -> int:
    """How many first tokens all rows have in common, leaving each at least one; 0 for a single row."""
    if len(rows) < 2:
        return 0
    low, high = min(rows), max(rows)  # in dictionary order; what these two share, all share
    common = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return min(common, min(map(len, rows)) - 1)
