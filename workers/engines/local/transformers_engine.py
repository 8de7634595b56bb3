"""The engine over transformers, in this process: the shared text of a request is encoded once.

Requests of similar length are answered together.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

import torch

from rubricsvc.core.verdict import Reason, Usage
from rubricsvc.errors import RubricsvcError
from workers.engines.base import EngineRequest, Failure, Replies, Reply, error_message
from workers.engines.local.batching import CLOSED, PendingRequest, pop_batch
from workers.engines.local.models import LoadBackoff, LoadedModel, load
from workers.engines.local.prefix_tree import Branch, PrefixTree, Sampler

TORCH_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
"""The only thread of this process that computes: tokenizers are not thread-safe, and the cores are shared."""

BATCH_TOKENS = 2048
"""Tokens of a request's questions that are computed at once; bounds the attention mask (2048 x 10,000 x 2 bytes)."""

MAX_BATCH_TOKENS = {"cpu": {False: 768, True: 8192}, "cuda": {False: 16384, True: 16384}}
"""Tokens of several requests that are computed at once, by device and by whether replies are written. A CPU is no
faster beyond some hundred tokens; a step of writing costs it nearly the same for one reply as for many."""


class _Cancelled(Exception):  # noqa: N818 - not an error
    """No caller waits for the batch."""


class TransformersEngine:
    """A model of transformers: ``embedded``, a folder or a name on the hub, loaded at the first request."""

    def __init__(
        self, model: str, *, revision: str | None = None, dtype: torch.dtype = torch.bfloat16, device: str = ""
    ) -> None:
        self._key = (model, revision, dtype, device)
        self._loaded: LoadedModel | None = None
        self._backoff = LoadBackoff()
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
            return await asyncio.wrap_future(pending.result)
        finally:
            pending.cancelled.set()  # a cancelled request stops at the thread's next step
            self._running.discard(pending)

    async def aclose(self) -> None:
        """Stop running requests at their next step, and release the model."""
        for pending in self._running:
            pending.cancelled.set()
        self._loaded, self._backoff = None, LoadBackoff()

    def _answer_next(self) -> None:
        """Answer the oldest request and those that can be computed with it. Submitted once for each request."""
        while self._arrived:
            self._waiting.append(self._arrived.popleft())
        with torch.inference_mode():
            for pending in list(self._waiting):
                if failure := self._prepare(pending):
                    self._waiting.remove(pending)
                    pending.fail(failure)
                    pending.finish()
            if not self._waiting:
                return
            device = self._model().model.device.type
            batch = pop_batch(self._waiting, MAX_BATCH_TOKENS.get(device, MAX_BATCH_TOKENS["cuda"]))
            self._answer(batch)
        for pending in batch:  # after the batch has released the model
            pending.finish()

    def _prepare(self, pending: PendingRequest) -> Failure | None:
        if pending.cancelled.is_set():
            return CLOSED
        try:
            if not pending.prepared:
                pending.prepare(self._model())
        except Exception as error:  # noqa: BLE001 - an engine never raises for errors of a model
            return _failure(error)
        return None

    def _answer(self, batch: list[PendingRequest]) -> None:
        try:
            _Run(self._model(), batch).answer()
        except Exception as error:  # noqa: BLE001 - as above
            if len(batch) == 1:
                batch[0].fail(_failure(error))
            else:  # a request must not fail for another, or for the memory of all
                for pending in batch:
                    self._answer([pending])

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            with self._backoff:
                self._loaded = load(*self._key)
        return self._loaded


def _failure(error: Exception) -> Failure:
    if isinstance(error, _Cancelled):
        return CLOSED
    if isinstance(error, RubricsvcError):
        return Failure(Reason.UNREACHABLE, f"{error.message}; {error.hint}" if error.hint else error.message)
    return Failure(Reason.ENGINE_ERROR, error_message(error))


class _Run:
    """Requests that are answered together, in the torch thread; request ``row`` is row ``row`` of the batch."""

    def __init__(self, loaded: LoadedModel, batch: list[PendingRequest]) -> None:
        self.loaded, self.batch = loaded, batch
        self.start = time.perf_counter()

    def answer(self) -> None:
        """Fill in the replies of all requests."""
        branches = PrefixTree(self.loaded.model, [pending.prefix for pending in self.batch])
        for portion in self._portions():
            self._check_stop()
            logits = dict(zip(portion, branches.extend(portion), strict=True))
            for row, i in list(logits):
                if self.batch[row].request.questions[i].labels:
                    self._readout(row, i, logits.pop((row, i)))
            self._write(branches, logits)
            branches.prune()

    def _portions(self) -> list[dict[Branch, list[int]]]:
        """Return the questions' own tokens: of each request as many as fit into ``BATCH_TOKENS``, and at least one."""
        by_row: list[list[dict[Branch, list[int]]]] = []
        for row, pending in enumerate(self.batch):
            portions: list[dict[Branch, list[int]]] = []
            for i in pending.asked:
                own = pending.token_ids[i][pending.shared :]
                if not portions or sum(map(len, portions[-1].values())) + len(own) > BATCH_TOKENS:
                    portions.append({})
                portions[-1][row, i] = own
            by_row.append(portions)
        return [{b: own for part in parts for b, own in part.items()} for parts in zip_longest(*by_row, fillvalue={})]

    def _readout(self, row: int, i: int, logits: torch.Tensor) -> None:
        probabilities = torch.softmax(logits, dim=-1)
        ids = self.loaded.conversation.label_ids
        mass = {label: float(probabilities[ids(label)].sum()) for label in self.batch[row].request.questions[i].labels}
        self._reply(row, i, text=self.loaded.conversation.token_text(int(logits.argmax())), label_mass=mass)

    def _write(self, branches: PrefixTree, logits: dict[Branch, torch.Tensor]) -> None:
        """Extend all replies by one token a step, each until its end or its limit."""
        samplers = {(row, i): self._sampler(row, i) for row, i in logits}
        texts: dict[Branch, list[int]] = {branch: [] for branch in logits}
        while logits:
            self._check_stop()
            growing: dict[Branch, list[int]] = {}
            for (row, i), scores in logits.items():
                token, text, pending = samplers[row, i].sample(scores), texts[row, i], self.batch[row]
                ended = token in self.loaded.eos_ids
                if not ended:
                    text.append(token)
                room = min(pending.request.sampling.max_tokens, pending.limit - len(pending.token_ids[i]))
                if ended or len(text) >= room:
                    decoded = self.loaded.conversation.decode(text)
                    self._reply(row, i, text=decoded, truncated=not ended, written=len(text) + ended)
                elif not pending.cancelled.is_set():
                    growing[row, i] = [token]
            logits = dict(zip(growing, branches.extend(growing), strict=True)) if growing else {}

    def _sampler(self, row: int, i: int) -> Sampler:
        request = self.batch[row].request
        seed = None if request.sampling.seed is None else request.sampling.seed + request.questions[i].sample
        return Sampler.seeded(request.sampling.temperature, request.sampling.top_p, seed)

    def _reply(
        self,
        row: int,
        i: int,
        *,
        text: str = "",
        label_mass: dict[str, float] | None = None,
        truncated: bool = False,
        written: int = 0,
    ) -> None:
        """Store a reply. The first question pays for the prefix; for the others it is cached."""
        pending = self.batch[row]
        cached = 0 if i == pending.asked[0] else pending.shared
        usage = Usage(prompt=len(pending.token_ids[i]), cached=cached, completion=written)
        pending.replies[i] = Reply(text, label_mass, truncated, usage, time.perf_counter() - self.start)

    def _check_stop(self) -> None:
        if all(pending.cancelled.is_set() for pending in self.batch):
            raise _Cancelled
