"""Requests that wait for a model in this process, and which of them are answered together."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from rubricsvc.core.verdict import Reason
from workers.engines.base import EngineRequest, Failure, Replies, Reply
from workers.engines.local.models import LoadedModel

CLOSED = Failure(Reason.ENGINE_ERROR, "the engine was closed")

_MAX_PADDING = 0.2
"""Share of a batch that may be padding."""


class PendingRequest:
    """A request, its replies so far by question, and the ``failure`` of those without one.

    Attributes:
        result: Done when the request has been answered, or its caller waits no longer.
        asked: The questions that go to the model; the others have failed.
        shared: How many first tokens the asked questions have in common.
        writes: Whether a reply is written (or all are readouts).
        size: Tokens to compute before the first new token.
    """

    def __init__(self, request: EngineRequest) -> None:
        self.request = request
        self.result: Future[Replies] = Future()
        self.replies: dict[int, Reply | Failure] = {}
        self.failure = CLOSED

    def prepare(self, loaded: LoadedModel) -> None:
        """Tokenize the questions, check their lengths and labels, and set the attributes for the batch."""
        questions = self.request.questions
        self.limit = min(loaded.context, self.request.max_context or loaded.context)
        self.token_ids = loaded.conversation.encode(self.request)
        for i, (question, ids) in enumerate(zip(questions, self.token_ids, strict=True)):
            if failure := loaded.conversation.check(question, ids, self.limit):
                self.replies[i] = failure
        self.asked = [i for i in range(len(questions)) if i not in self.replies]
        self.shared = shared_length([self.token_ids[i] for i in self.asked])
        self.writes = any(not questions[i].labels for i in self.asked)
        self.size = self.shared + sum(len(self.token_ids[i]) - self.shared for i in self.asked)
        self.prefix = self.token_ids[self.asked[0]][: self.shared] if self.asked else []

    def finish(self) -> None:
        """Set the result."""
        with suppress(InvalidStateError):  # the caller waits no longer
            self.result.set_result([self.replies.get(i, self.failure) for i in range(len(self.request.questions))])


def pop_batch(waiting: list[PendingRequest], max_tokens: dict[bool, int]) -> list[PendingRequest]:
    """Remove from ``waiting`` its first request, the oldest, and those of its kind and of similar length.

    ``max_tokens`` limits the tokens of a batch, padding included, by ``PendingRequest.writes``.
    """
    oldest = waiting.pop(0)
    batch, total, longest = [oldest], oldest.size, oldest.size
    for other in [request for request in waiting if request.writes == oldest.writes]:
        widest = max(longest, other.size)
        padded = widest * (len(batch) + 1)
        if padded <= max_tokens[oldest.writes] and total + other.size >= (1 - _MAX_PADDING) * padded:
            waiting.remove(other)
            batch.append(other)
            total, longest = total + other.size, widest
    return batch


def shared_length(rows: list[list[int]]) -> int:
    """Return how many first tokens all rows have in common, leaving each at least one; 0 for a single row."""
    if len(rows) < 2:
        return 0
    low, high = min(rows), max(rows)  # in lexicographic order: what these two share, all share
    common = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return min(common, min(map(len, rows)) - 1)
