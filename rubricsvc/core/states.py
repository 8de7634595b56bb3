"""Types of states. They import no library, so that the command line starts fast."""

from __future__ import annotations

from typing import Literal

JobStatus = Literal["queued", "in_progress", "completed", "completed_with_failures", "budget_exhausted", "cancelled"]
ItemState = Literal["pending", "leased", "done", "failed", "cancelled"]
Outcome = Literal["scored", "abstained", "failed"]

ItemSort = Literal["id", "reward", "-reward"]
"""Order of a job's items: by id, or by rising or falling reward with those without a reward last."""
