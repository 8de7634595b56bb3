"""The cost of a drain's calls, charged in the database to the budget of their job."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc.store import jobs
from rubricsvc.store.jobs import Grant
from workers.engines.budget import Budget, current_budget

Write = Callable[[Callable[[Session], Any]], Awaitable[Any]]
"""Runs a step in a transaction of its own, and waits while the database is unreachable."""

_AHEAD_SECONDS = 0.2
"""Seconds of calls for which money is reserved ahead, so that not every call writes. A killed worker loses it."""

_POLL_SECONDS = 0.1
"""Interval of checks for money that calls under way have released."""

_ROUNDING = 1e-12
"""US dollars that sums of costs may be off by."""


class JobBudget(Budget):
    """The ``Budget`` of one job in one drain of ``worker``. Used from one event loop.

    Of the money reserved in the database, ``_held`` is for calls under way, ``_free`` for the next ones, and ``_spent``
    is used. ``_wanted`` is the need of waiting calls, ``_recent`` the recent spending.

    Attributes:
        capped: Whether the job has a budget.
        over: Whether the job is over its budget; set to False to allow calls again.
        room: For the first requests of as many items as calls are made at once: a killed worker loses what they hold.
        opening: Held by the item whose first request is not covered, until it is or has ended.
        urgent: Items with a further request that is not covered; none is begun before them.
    """

    def __init__(self, job_id: int, write: Write, *, worker: str, capped: bool, concurrency: int = 64) -> None:
        self._write = write
        self._reserve = partial(jobs.reserve, job_id=job_id, worker=worker)
        self._exhaust = partial(jobs.exhaust, job_id=job_id)
        self.capped = capped
        self.over, self.room = False, asyncio.Semaphore(concurrency)
        self.opening, self.urgent = asyncio.Lock(), list[ItemBudget]()
        self._spent = self._free = self._held = self._wanted = self._recent = 0.0
        self._wrote_at = time.monotonic()
        self._writing = asyncio.Lock()
        self._requesting: asyncio.Task[Grant] | None = None

    async def reserve(self, max_cost: float, /, *, whole: bool = False) -> bool:
        """Reserve the maximum cost of a call; return False if the job is over its budget.

        For a ``whole`` request, also if it is not covered and no call under way may release money.
        """
        self._wanted += max_cost
        try:
            while self.capped and not self.over and self._free < max_cost:
                if own := self._requesting is None:
                    self._requesting = asyncio.create_task(self._request(max_cost, whole=whole))
                grant = await asyncio.shield(self._requesting)  # a cancelled call must not lose the grant
                if own and whole and not (grant.granted or grant.may_return):
                    return False
                if not (self.over or grant.granted):
                    await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._wanted -= max_cost
        if self.capped and not self.over:
            self._free -= max_cost
            self._held += max_cost
        return not self.over

    def settle(self, max_cost: float, cost: float, /) -> None:
        """Replace a call's reservation by its actual cost."""
        self._spent += cost
        if self.capped:
            self._free += max_cost - cost
            self._held = max(0.0, self._held - max_cost)

    async def flush(self) -> None:
        """Write what was spent and release what is not needed."""
        while self._requesting is not None:
            with suppress(Exception):  # the waiting call gets the error
                await asyncio.shield(self._requesting)
        if self._spent or self._free:
            await self._write_spent()

    async def _request(self, max_cost: float, *, whole: bool) -> Grant:
        """Reserve for the waiting calls, one of which costs ``max_cost``.

        Ends the job if no money is left, even for a single call.
        """
        try:
            grant = await self._write_spent(least=max_cost)
            if not (whole or grant.granted or grant.exhausted or grant.may_return):
                await self._write(self._exhaust)
                self.over = True
            self.over = self.over or grant.exhausted
            return grant
        finally:
            self._requesting = None

    async def _write_spent(self, least: float = 0.0) -> Grant:
        """Write what is spent and held; reserve for the next calls, at least ``least``."""
        async with self._writing:  # the last write decides what is reserved
            spent, free = self._spent, self._free
            self._spent = self._free = 0.0
            now = time.monotonic()  # what was spent in about the last `_AHEAD_SECONDS` will be spent again
            self._recent = self._recent * math.exp((self._wrote_at - now) / _AHEAD_SECONDS) + spent
            self._wrote_at, ahead = now, self._recent
            most = self._wanted + ahead if least else ahead if spent and self._held > _ROUNDING else 0.0
            try:
                grant: Grant = await self._write(
                    partial(self._reserve, spent=spent, held=self._held, least=least, most=most)
                )
            except BaseException:
                self._spent, self._free = self._spent + spent, self._free + free
                raise
            self._free += grant.granted
            return grant


class ItemBudget:
    """The ``Budget`` of one item: its requests are covered as a whole, so that what is begun can end.

    A first request that is not covered is made alone, call by call, when nothing else is under way: so the last money
    buys the verdicts of one item after the other. An item that waits holds no money.
    """

    def __init__(self, job: JobBudget) -> None:
        self._job, self._begun = job, False
        self.reserve, self.settle = job.reserve, job.settle  # of calls outside of a request

    @asynccontextmanager
    async def whole(self, max_cost: float, /) -> AsyncIterator[None]:
        """Reserve the maximum cost of a request and set ``current_budget`` to it; without it, calls reserve theirs."""
        job = self._job
        async with AsyncExitStack() as request, AsyncExitStack() as waiting:
            if not self._begun:
                await request.enter_async_context(job.room)
                await waiting.enter_async_context(job.opening)
            if self._begun:  # perhaps meanwhile, by another request
                job.urgent.append(self)
                waiting.callback(job.urgent.remove, self)
            while not self._begun and job.urgent and not job.over:
                await asyncio.sleep(_POLL_SECONDS)
            self._begun = True
            if await job.reserve(max_cost, whole=True):
                await waiting.aclose()
                own = _RequestBudget(job, max_cost)
                request.callback(lambda: job.settle(own.left, 0.0))
                request.callback(current_budget.reset, current_budget.set(own))
            yield


@dataclass(eq=False)
class _RequestBudget(Budget):
    """What is ``left`` of the money of a request; what repeated calls need beyond it is added from the job's."""

    job: JobBudget
    left: float

    async def reserve(self, max_cost: float, /) -> bool:
        if self.left < max_cost - _ROUNDING:
            if not await self.job.reserve(max_cost):
                return False
            self.left += max_cost
        self.left -= max_cost
        return True

    def settle(self, max_cost: float, cost: float, /) -> None:
        self.job.settle(cost, cost)
        self.left += max_cost - cost
