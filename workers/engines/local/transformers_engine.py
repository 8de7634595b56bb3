"""The engine over transformers, in this process: what the questions of an ask share is encoded once.

Asks of similar length are answered together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

import torch

from rubricsvc.core.verdict import Reason, Usage
from rubricsvc.errors import RubricsvcError
from workers.engines.base import EngineRequest, Failure, Reply, error_message
from workers.engines.local.batching import CLOSED, PendingRequest, take
from workers.engines.local.models import LoadBackoff, Loaded, load
from workers.engines.local.prefix_tree import Branch, PrefixTree, Sampler

_TORCH = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
"""The one thread of this process that does the arithmetic: tokenizers are not thread-safe, and cores are shared."""

_BATCH_TOKENS = 2048
"""How many tokens of an ask's questions are read at once; bounds the attention mask (2048 x 10,000 x 2 bytes)."""

_TOGETHER = {"cpu": {False: 768, True: 8192}, "cuda": {False: 16384, True: 16384}}
"""How many tokens of several asks are read at once, by whether replies are written. A CPU reads no faster beyond some
hundred tokens; a step of writing costs it nearly the same for one reply as for many."""


class _Stopped(Exception):  # noqa: N818 - not an error: nobody waits for the answer any more
    pass


class TransformersEngine:
    """``model`` is ``embedded``, a folder or a name on the hub. It is loaded at the first ask."""

    def __init__(
        self, model: str, *, revision: str | None = None, dtype: torch.dtype = torch.bfloat16, device: str = ""
    ) -> None:
        self._key = (model, revision, dtype, device)
        self._loaded: Loaded | None = None
        self._setback = LoadBackoff()
        self._arrived: deque[PendingRequest] = deque()
        self._waiting: list[PendingRequest] = []  # the torch thread's
        self._running: set[PendingRequest] = set()

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        pending = PendingRequest(request)
        self._running.add(pending)
        self._arrived.append(pending)
        _TORCH.submit(self._turn)
        try:
            return await asyncio.wrap_future(pending.answer)
        finally:
            pending.stop.set()  # whoever waited may be gone; the thread then stops at its next step
            self._running.discard(pending)

    async def aclose(self) -> None:
        """Stops what runs, at its next step, and lets the model go."""
        for pending in self._running:
            pending.stop.set()
        self._loaded, self._setback = None, LoadBackoff()

    def _turn(self) -> None:
        """Answer the oldest ask and those that can be answered with it. There is a turn for every ask."""
        while self._arrived:
            self._waiting.append(self._arrived.popleft())
        with torch.inference_mode():
            for pending in list(self._waiting):
                if failure := self._prepare(pending):
                    self._waiting.remove(pending)
                    pending.give_up(failure)
                    pending.finish()
            if not self._waiting:
                return
            batch = take(self._waiting, _TOGETHER.get(self._model().model.device.type, _TOGETHER["cuda"]))
            self._answer(batch)
        for pending in batch:  # now that nothing here holds the model
            pending.finish()

    def _prepare(self, pending: PendingRequest) -> Failure | None:
        if pending.stop.is_set():
            return CLOSED
        try:
            if not pending.prepared:
                pending.prepare(self._model())
        except Exception as error:  # noqa: BLE001 - an ask never raises for what a model does wrong
            return _failure(error)
        return None

    def _answer(self, batch: list[PendingRequest]) -> None:
        try:
            _Run(self._model(), batch).answer()
        except Exception as error:  # noqa: BLE001 - as above
            if len(batch) == 1:
                batch[0].give_up(_failure(error))
            else:  # no ask shall fail for another, nor for the memory that all took together
                for pending in batch:
                    self._answer([pending])

    def _model(self) -> Loaded:
        if self._loaded is None:
            with self._setback:
                self._loaded = load(*self._key)
        return self._loaded


def _failure(error: Exception) -> Failure:
    if isinstance(error, _Stopped):
        return CLOSED
    if isinstance(error, RubricsvcError):
        return Failure(Reason.UNREACHABLE, f"{error.message}; {error.hint}" if error.hint else error.message)
    return Failure(Reason.ENGINE_ERROR, error_message(error))


class _Run:
    """Asks being answered together, in the torch thread. Ask number ``row`` is row ``row`` of the batch."""

    def __init__(self, loaded: Loaded, batch: list[PendingRequest]) -> None:
        self.loaded, self.batch = loaded, batch
        self.start = time.perf_counter()

    def answer(self) -> None:
        branches = PrefixTree(self.loaded.model, [pending.prefix for pending in self.batch])
        for portion in self._portions():
            self._check_stop()
            logits = dict(zip(portion, branches.extend(portion), strict=True))
            for row, i in list(logits):
                if self.batch[row].ask.questions[i].labels:
                    self._readout(row, i, logits.pop((row, i)))
            self._write(branches, logits)
            branches.prune()

    def _portions(self) -> list[dict[Branch, list[int]]]:
        """The questions' own tokens: from each ask as many as fit into ``_BATCH_TOKENS``, and at least one."""
        by_ask: list[list[dict[Branch, list[int]]]] = []
        for row, pending in enumerate(self.batch):
            portions: list[dict[Branch, list[int]]] = []
            for i in pending.asked:
                own = pending.rows[i][pending.shared :]
                if not portions or sum(map(len, portions[-1].values())) + len(own) > _BATCH_TOKENS:
                    portions.append({})
                portions[-1][row, i] = own
            by_ask.append(portions)
        return [{b: own for part in parts for b, own in part.items()} for parts in zip_longest(*by_ask, fillvalue={})]

    def _readout(self, row: int, i: int, logits: torch.Tensor) -> None:
        chances = torch.softmax(logits, dim=-1)
        ids = self.loaded.conversation.label_ids
        mass = {label: float(chances[ids(label)].sum()) for label in self.batch[row].ask.questions[i].labels}
        self._found(row, i, text=self.loaded.conversation.spelling(int(logits.argmax())), label_mass=mass)

    def _write(self, branches: PrefixTree, logits: dict[Branch, torch.Tensor]) -> None:
        """Let all replies grow by one token a step, each until its end or its limit."""
        samplers = {(row, i): self._sampler(row, i) for row, i in logits}
        texts: dict[Branch, list[int]] = {branch: [] for branch in logits}
        while logits:
            self._check_stop()
            growing: dict[Branch, list[int]] = {}
            for (row, i), scores in logits.items():
                token, text, pending = samplers[row, i].draw(scores), texts[row, i], self.batch[row]
                ended = token in self.loaded.eos_ids
                if not ended:
                    text.append(token)
                room = min(pending.ask.sampling.max_tokens, pending.limit - len(pending.rows[i]))
                if ended or len(text) >= room:
                    said = self.loaded.conversation.decode(text)
                    self._found(row, i, text=said, truncated=not ended, written=len(text) + ended)
                elif not pending.stop.is_set():
                    growing[row, i] = [token]
            logits = dict(zip(growing, branches.extend(growing), strict=True)) if growing else {}

    def _sampler(self, row: int, i: int) -> Sampler:
        request = self.batch[row].ask
        seed = None if request.sampling.seed is None else request.sampling.seed + request.questions[i].sample
        return Sampler.seeded(request.sampling.temperature, request.sampling.top_p, seed)

    def _found(
        self,
        row: int,
        i: int,
        *,
        text: str = "",
        label_mass: dict[str, float] | None = None,
        truncated: bool = False,
        written: int = 0,
    ) -> None:
        """The first question pays for the prefix; for the others it was there."""
        pending = self.batch[row]
        cached = 0 if i == pending.asked[0] else pending.shared
        usage = Usage(prompt=len(pending.rows[i]), cached=cached, completion=written)
        pending.found[i] = Reply(text, label_mass, truncated, usage, time.perf_counter() - self.start)

    def _check_stop(self) -> None:
        if all(pending.stop.is_set() for pending in self.batch):
            raise _Stopped
