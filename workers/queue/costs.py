"""What the calls of a drain cost: paid in the database, from the budget of the job that they are made for."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from rubricsvc.store import budgets
from rubricsvc.store.budgets import Reservation

Write = Callable[[Callable[[Session], Any]], Awaitable[Any]]
"""Does something in a transaction of its own, and waits for a database that is away."""

_AHEAD_S = 0.2
"""As much as was spent in about so many seconds is reserved for calls to come, so that not every call writes. Not
more: all that a worker has reserved is lost when it is killed."""

_LOOKS_S = 0.1
"""How often to look whether calls under way have given back what they reserved."""


class JobBudget:
    """The ``Budget`` of one job in one drain of ``worker``. Used from one event loop.

    Of what is reserved in the database, ``_held`` is for the calls under way, ``_left`` for the next ones, and
    ``_spent`` gone. ``_wanted`` is for calls that wait, ``_lately`` what was spent of late.
    """

    def __init__(self, job_id: int, write: Write, *, worker: str, capped: bool) -> None:
        self._write = write
        self._book = partial(budgets.book, job_id=job_id, worker=worker)
        self._exhaust = partial(budgets.exhaust, job_id=job_id)
        self._capped = capped
        self._over = False
        self._spent = self._left = self._held = self._wanted = self._lately = 0.0
        self._calls = 0
        self._wrote_at = time.monotonic()
        self._writing = asyncio.Lock()
        self._taking: asyncio.Task[bool] | None = None

    def open(self) -> None:
        """Items of this job were claimed, perhaps after a retry that brought money."""
        self._over = False

    async def reserve(self, worst: float) -> bool:
        self._wanted += worst
        try:
            while self._capped and not self._over and self._left < worst:
                if self._taking is None:
                    self._taking = asyncio.create_task(self._take(worst))
                if not await asyncio.shield(self._taking):  # whoever is cancelled must not lose what was granted
                    await asyncio.sleep(_LOOKS_S)
        finally:
            self._wanted -= worst
        if self._capped and not self._over:
            self._left -= worst
            self._held += worst
            self._calls += 1
        return not self._over

    def settle(self, worst: float, spent: float) -> None:
        self._spent += spent
        if self._capped:
            self._left += worst - spent
            self._calls -= 1
            self._held = self._held - worst if self._calls else 0.0

    async def flush(self) -> None:
        """Write what was spent, and give back what is not needed: all, once no call has ended since it last wrote."""
        while self._taking is not None:
            with suppress(Exception):  # whoever waits for it is told
                await asyncio.shield(self._taking)
        if self._spent or self._left:
            await self._settled()

    async def _take(self, worst: float) -> bool:
        """Reserve for the calls that wait, one of this size among them; whether there is something new. Ends the job
        where nothing is left."""
        try:
            taken = await self._settled(least=worst)
            if not (taken.granted or taken.exhausted or taken.returns):
                await self._write(self._exhaust)
                self._over = True
            self._over = self._over or taken.exhausted
            return self._over or bool(taken.granted)
        finally:
            self._taking = None

    async def _settled(self, least: float = 0.0) -> Reservation:
        """Write what was spent and what calls under way hold. Reserve anew for calls to come, ``least`` where asked."""
        async with self._writing:  # the last to write says what is reserved
            spent, left = self._spent, self._left
            self._spent = self._left = 0.0
            ahead = self._pace(spent)
            most = self._wanted + ahead if least else ahead if spent and self._calls else 0.0
            try:
                taken: Reservation = await self._write(
                    partial(self._book, spent=spent, held=self._held, least=least, most=most)
                )
            except BaseException:
                self._spent, self._left = self._spent + spent, self._left + left
                raise
            self._left += taken.granted
            return taken

    def _pace(self, spent: float) -> float:
        """What was spent in about the last ``_AHEAD_S``, now that it is ``spent`` more."""
        now = time.monotonic()
        self._lately = self._lately * math.exp((self._wrote_at - now) / _AHEAD_S) + spent
        self._wrote_at = now
        return self._lately
