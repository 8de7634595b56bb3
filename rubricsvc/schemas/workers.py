"""Wire types of workers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from rubricsvc.schemas.base import Wire


class StoredWorker(Wire):
    """A worker that runs, or that was lost within the last hour."""

    name: str = Field(description="Name of the worker.")
    host: str = Field(description="Machine.")
    pid: int = Field(description="Process id.")
    status: Literal["running", "lost"] = Field(description="Lost if it missed several reports.")
    since: datetime = Field(description="Time at which it started.")
    last_seen: float = Field(description="Seconds since its last report.")
