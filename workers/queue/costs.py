"""The cost of a drain's calls, charged in the database to the budget of their job."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc.store import jobs
from rubricsvc.store.jobs import Grant

Write = Callable[[Callable[[Session], Any]], Awaitable[Any]]
"""Runs a step in a transaction of its own, and waits while the database is unreachable."""

_AHEAD_SECONDS = 0.2
"""Seconds of calls for which money is reserved ahead, so that not every call writes. A killed worker loses it."""

_POLL_SECONDS = 0.1
"""Interval of checks for money that calls under way have released."""


class JobBudget:
    """The ``Budget`` of one job in one drain of ``worker``. Used from one event loop.

    Of the money reserved in the database, ``_held`` is for calls under way, ``_free`` for the next ones, and ``_spent``
    is used. ``_wanted`` is the need of waiting calls, ``_recent`` the recent spending.

    Attributes:
        over: Whether the job is over its budget; set to False to allow calls again.
    """

    def __init__(self, job_id: int, write: Write, *, worker: str, capped: bool) -> None:
        self._write = write
        self._reserve = partial(jobs.reserve, job_id=job_id, worker=worker)
        self._exhaust = partial(jobs.exhaust, job_id=job_id)
        self._capped = capped
        self.over = False
        self._spent = self._free = self._held = self._wanted = self._recent = 0.0
        self._calls = 0
        self._wrote_at = time.monotonic()
        self._writing = asyncio.Lock()
        self._requesting: asyncio.Task[bool] | None = None

    async def reserve(self, max_cost: float) -> bool:
        """Reserve the maximum cost of a call; return False if the job is over its budget."""
        self._wanted += max_cost
        try:
            while self._capped and not self.over and self._free < max_cost:
                if self._requesting is None:
                    self._requesting = asyncio.create_task(self._request(max_cost))
                if not await asyncio.shield(self._requesting):  # a cancelled call must not lose the grant
                    await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._wanted -= max_cost
        if self._capped and not self.over:
            self._free -= max_cost
            self._held += max_cost
            self._calls += 1
        return not self.over

    def settle(self, max_cost: float, cost: float) -> None:
        """Replace a call's reservation by its actual cost."""
        self._spent += cost
        if self._capped:
            self._free += max_cost - cost
            self._calls -= 1
            self._held = self._held - max_cost if self._calls else 0.0

    async def flush(self) -> None:
        """Write what was spent and release what is not needed."""
        while self._requesting is not None:
            with suppress(Exception):  # the waiting call gets the error
                await asyncio.shield(self._requesting)
        if self._spent or self._free:
            await self._write_spent()

    async def _request(self, max_cost: float) -> bool:
        """Reserve for the waiting calls, one of which costs ``max_cost``; return whether anything changed.

        Ends the job if no money is left.
        """
        try:
            grant = await self._write_spent(least=max_cost)
            if not (grant.granted or grant.exhausted or grant.may_return):
                await self._write(self._exhaust)
                self.over = True
            self.over = self.over or grant.exhausted
            return self.over or bool(grant.granted)
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
            most = self._wanted + ahead if least else ahead if spent and self._calls else 0.0
            try:
                grant: Grant = await self._write(
                    partial(self._reserve, spent=spent, held=self._held, least=least, most=most)
                )
            except BaseException:
                self._spent, self._free = self._spent + spent, self._free + free
                raise
            self._free += grant.granted
            return grant
