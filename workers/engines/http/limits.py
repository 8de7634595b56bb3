"""How hard a server may be asked: calls at once, what one minute takes, and the pauses that the server asks for."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_LOOKS_S = 0.25
"""How often a full minute is looked at again: a correction may have made room."""


class Slots:
    """Calls at once, at most ``most``: adaptive, additive increase and multiplicative decrease (AIMD, as TCP has it).

    It begins with all; each round of calls that went well adds one, and a round with a call that went badly halves.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._halved_at = float("-inf")
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def limit(self) -> int:
        """How many calls may be under way now."""
        return int(self._limit)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A slot, first come first served."""
        if self._busy < self.limit:  # nobody waits while there is room
            self._busy += 1
        else:
            await self._turn()
        try:
            yield
        finally:
            self._free()

    def went_well(self) -> None:
        self._limit = min(self._most, self._limit + 1 / self._limit)
        self._hand_out()

    def went_badly(self, began: float) -> None:
        """A call that ``began`` then (by ``time.monotonic``) was turned away. Those begun before the last halving say
        nothing about the limit that it set."""
        if began >= self._halved_at:
            self._halved_at = time.monotonic()
            self._limit = max(1.0, self._limit / 2)

    async def _turn(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # the slot was handed over in the same moment
                self._free()
            raise

    def _free(self) -> None:
        self._busy -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._busy < self.limit:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else it was cancelled
                self._busy += 1
                waiter.set_result(None)


class Pause:
    """A wait that the server asked for, of everybody."""

    def __init__(self) -> None:
        self._until = 0.0

    def ask(self, seconds: float) -> None:
        self._until = max(self._until, time.monotonic() + seconds)

    async def over(self) -> None:
        while (left := self._until - time.monotonic()) > 0:
            await asyncio.sleep(left)


@dataclass(slots=True, eq=False)
class Taken:
    """An amount that was begun at a time; ``counts`` until the minute has passed."""

    at: float
    amount: float
    counts: bool = True


class Minute:
    """At most ``most`` of something (requests, tokens) begun within any ``seconds``; what is larger alone goes alone.

    First come first served. Tokens are estimated before the call and corrected after it.
    """

    def __init__(self, most: int, seconds: float = 60.0) -> None:
        self._most = most
        self._seconds = seconds
        self._taken: deque[Taken] = deque()
        self._total = 0.0
        self._door = asyncio.Lock()

    async def take(self, amount: float) -> Taken:
        """Wait until there is room for ``amount``."""
        async with self._door:
            while (left := self._full_for(amount)) > 0:
                await asyncio.sleep(min(left, _LOOKS_S))
            taken = Taken(time.monotonic(), amount)
            self._taken.append(taken)
            self._total += amount
        return taken

    def correct(self, taken: Taken, amount: float) -> None:
        """It was another amount than was thought."""
        if taken.counts:
            self._total += amount - taken.amount
            taken.amount = amount

    def _full_for(self, amount: float) -> float:
        now = time.monotonic()
        while self._taken and self._taken[0].at + self._seconds <= now:
            old = self._taken.popleft()
            old.counts = False
            self._total -= old.amount
        if not self._taken:
            self._total = 0.0  # and no rest of rounding
        if not self._taken or self._total + amount <= self._most:
            return 0.0
        return self._taken[0].at + self._seconds - now
