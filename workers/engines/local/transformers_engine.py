"""Requests that wait for a model in this process, and which of them are answered together."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from rubricsvc.core.verdict import Reason, Usage
from workers.engines.base import EngineRequest, Failure, Replies, Reply
from workers.engines.local.models import LoadedModel, load, load_backoff, model_failure
from workers.engines.local.prefix_tree import BranchId, PrefixTree, shared_length
from workers.engines.local.weights import ModelWeights
from workers.reasoning import reply_texts

CLOSED = Failure(Reason.ENGINE_ERROR, "the engine was closed")

_MAX_PADDING = 0.2  # share of a batch that may be padding


@dataclass(eq=False)
class PendingRequest:
    """A request, its replies so far by question, and the ``failure`` of those without one.

    Attributes:
        result: Done when the request has been answered, or its caller waits no longer.
        asked: The questions that go to the model; the others have failed.
        shared: How many first tokens the asked questions have in common.
        writes: Whether a reply is written (or all are readouts).
        size: Tokens to compute before the first new token.
    """

    request: EngineRequest
    result: Future[Replies] = field(default_factory=Future)
    replies: dict[int, Reply | Failure] = field(default_factory=dict)
    failure: Failure = CLOSED

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


TORCH_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
"""The only thread of this process that computes: tokenizers are not thread-safe, and the cores are shared."""

BATCH_TOKENS = 2048
"""Tokens of a request's questions that are computed at once; bounds the attention mask (2048 x 10,000 x 2 bytes)."""

MAX_BATCH_TOKENS = {"cpu": {False: 768, True: 8192}, "cuda": {False: 16384, True: 16384}}
"""Tokens of several requests that are computed at once, by device and by whether replies are written. A CPU is no
faster beyond some hundred tokens; a step of writing costs it nearly the same for one reply as for many."""


class TransformersEngine:
    """A model of transformers, loaded at the first request; a LoRA adapter is merged into it."""

    def __init__(self, weights: ModelWeights, *, dtype: torch.dtype | None = None, device: str = "") -> None:
        self._weights, self._dtype, self._device = weights, dtype, device
        self._loaded: LoadedModel | None = None
        self._failures: dict[ModelWeights, tuple[float, str]] = {}
        self._arrived: deque[PendingRequest] = deque()
        self._waiting: list[PendingRequest] = []  # used by the torch thread only
        self._running: set[PendingRequest] = set()

    async def ask(self, request: EngineRequest) -> Replies:
        """Return one reply or failure for each question, in order."""
        pending = PendingRequest(request)
        self._running.add(pending)
        self._arrived.append(pending)
        TORCH_THREAD.submit(self._answer_next)
        try:
            return await asyncio.wrap_future(pending.result)  # cancelling the caller cancels it, which stops the work
        finally:
            self._running.discard(pending)

    async def aclose(self) -> None:
        """End running requests, whose computation stops at its next step, and release the model."""
        for pending in self._running:
            pending.finish()
        self._loaded, self._failures = None, {}

    def _answer_next(self) -> None:
        """Answer the oldest request and those of its kind and of similar length. Submitted once for each request."""
        with torch.inference_mode():
            while self._arrived:
                arrived = self._arrived.popleft()
                if arrived.result.done():
                    continue
                try:
                    arrived.prepare(self._model())
                    self._waiting.append(arrived)
                except Exception as error:  # noqa: BLE001 - an engine never raises for errors of a model
                    arrived.failure = model_failure(error)
                    arrived.finish()
            self._waiting = [pending for pending in self._waiting if not pending.result.done()]
            if not self._waiting:
                return
            device = self._model().model.device.type
            most = MAX_BATCH_TOKENS.get(device, MAX_BATCH_TOKENS["cuda"])
            oldest = self._waiting.pop(0)
            batch, total, longest = [oldest], oldest.size, oldest.size
            for other in [pending for pending in self._waiting if pending.writes == oldest.writes]:
                widest = max(longest, other.size)
                padded = widest * (len(batch) + 1)
                if padded <= most[oldest.writes] and total + other.size >= (1 - _MAX_PADDING) * padded:
                    self._waiting.remove(other)
                    batch.append(other)
                    total, longest = total + other.size, widest
            self._answer(batch)
        for pending in batch:  # after the batch has released the model
            pending.finish()

    def _answer(self, batch: list[PendingRequest]) -> None:
        try:
            answer_batch(self._model(), batch)
        except Exception as error:  # noqa: BLE001 - as above
            if len(batch) == 1:
                batch[0].failure = model_failure(error)
            else:  # a request must not fail for another, or for the memory of all
                for pending in batch:
                    self._answer([pending])

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            with load_backoff(self._failures, self._weights):
                self._loaded = load(self._weights, self._dtype, self._device)
        return self._loaded


def answer_batch(loaded: LoadedModel, requests: list[PendingRequest]) -> None:
    """Set the replies of requests, together, in the torch thread. Request ``row`` is row ``row`` of the prefix tree.

    The first question of a request pays for the prefix; for the others it is cached.
    """
    start, conversation = time.perf_counter(), loaded.conversation

    def add_reply(branch: BranchId, reply: Reply, completion: int = 0) -> None:
        row, i = branch
        pending = requests[row]
        cached = 0 if i == pending.asked[0] else pending.shared
        usage = Usage(prompt=len(pending.token_ids[i]), cached=cached, completion=completion)
        pending.replies[i] = replace(reply, usage=usage, latency_s=time.perf_counter() - start)

    tree = PrefixTree(loaded.model, [pending.prefix for pending in requests])
    portions: dict[int, dict[BranchId, list[int]]] = defaultdict(dict)
    for row, pending in enumerate(requests):  # as many of each as fit into BATCH_TOKENS, and at least one
        number, size = 0, 0
        for i in pending.asked:
            own_ids = pending.token_ids[i][pending.shared :]
            if size and size + len(own_ids) > BATCH_TOKENS:
                number, size = number + 1, 0
            portions[number][row, i] = own_ids
            size += len(own_ids)
    for portion in portions.values():
        if all(pending.result.done() for pending in requests):
            return
        logits = dict(zip(portion, tree.extend(portion), strict=True))
        for row, i in portion:
            if labels := requests[row].request.questions[i].labels:
                own = logits.pop((row, i))
                probabilities = torch.softmax(own, dim=-1)
                mass = {label: float(probabilities[conversation.label_ids(label)].sum()) for label in labels}
                likeliest = conversation.tokenizer.decode([int(own.argmax())])
                add_reply((row, i), Reply(likeliest, mass))
        generators: dict[BranchId, torch.Generator] = {}
        for row, i in logits:  # each has its own, so that no text depends on the others
            seed, generator = requests[row].request.sampling.seed, torch.Generator()
            sample = requests[row].request.questions[i].sample
            generators[row, i] = generator.manual_seed((generator.seed() if seed is None else seed) + sample)
        texts: dict[BranchId, list[int]] = {branch: [] for branch in logits}
        while logits and not all(pending.result.done() for pending in requests):
            growing: dict[BranchId, list[int]] = {}  # all replies by one token a step, each until its end or its limit
            for (row, i), scores in logits.items():
                text, pending = texts[row, i], requests[row]
                sampling = pending.request.sampling
                if sampling.temperature == 0:
                    token = int(scores.argmax())
                else:
                    probabilities, ids = torch.softmax(scores / sampling.temperature, dim=-1).sort(descending=True)
                    probabilities[probabilities.cumsum(0) - probabilities >= sampling.top_p] = 0.0
                    token = int(ids[torch.multinomial(probabilities, 1, generator=generators[row, i])])
                ended = token in loaded.eos_ids
                if not ended:
                    text.append(token)
                if ended or len(text) >= min(sampling.max_tokens, pending.limit - len(pending.token_ids[i])):
                    reply = Reply(reply_texts(conversation.tokenizer, [text])[0], truncated=not ended)
                    add_reply((row, i), reply, len(text) + ended)
                elif not pending.result.done():
                    growing[row, i] = [token]
            logits = dict(zip(growing, tree.extend(growing), strict=True)) if growing else {}
        tree.prune()
