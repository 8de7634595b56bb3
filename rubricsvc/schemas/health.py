"""Wire types of health checks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rubricsvc.schemas.base import Wire


class Alive(Wire):
    """Health response."""

    status: Literal["ok"]


class Ready(Alive):
    """Readiness response."""

    workers: int = Field(description="Running workers. Without one jobs are accepted, and wait.")
