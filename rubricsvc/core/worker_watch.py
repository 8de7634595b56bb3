"""Notices of a missing worker for commands and clients that wait for a job."""

from __future__ import annotations

import math
from typing import Literal

REMIND_SECONDS = 60.0

Notice = Literal["missing", "back"]


class WorkerWatch:
    """Turns counts of running workers into notices.

    ``missing`` comes at once and again every `REMIND_SECONDS`, ``back`` once a worker runs after that.
    """

    def __init__(self) -> None:
        self._remind_at = -math.inf

    def notice(self, workers: int, now: float) -> Notice | None:
        """Return the notice due with so many running workers at ``now``, in seconds of any clock."""
        if workers:
            was_missing, self._remind_at = self._remind_at > -math.inf, -math.inf
            return "back" if was_missing else None
        if now < self._remind_at:
            return None
        self._remind_at = now + REMIND_SECONDS
        return "missing"
