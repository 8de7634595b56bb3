"""Requests about evolutions; what they return are values of `rubricsvc.core.evolution`."""

from __future__ import annotations

from pydantic import Field

from rubricsvc.queries import Paging


class EvolutionFilters(Paging):
    """Which evolutions are listed."""

    run: str | None = Field(None, description="Filter by training run.")
    prompt: int | str | None = Field(None, description="Filter by prompt: id, or id in its file.")
