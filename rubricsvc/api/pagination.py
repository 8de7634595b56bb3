"""Keyset pagination: ``?after=ID&limit=N`` in, ``{"data": […], "next": ID or null}`` out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol, TypeVar

from fastapi import Query

from rubricsvc.core.base import MAX_ID
from rubricsvc.schemas import MAX_LIMIT, Page, Whole

After = Annotated[Whole, Query(ge=0, le=MAX_ID, description="the `next` of the page before")]
Limit = Annotated[Whole, Query(ge=1, le=MAX_LIMIT, description="the most rows to give")]


class HasId(Protocol):
    @property
    def id(self) -> int: ...


Row = TypeVar("Row")
Data = TypeVar("Data", bound=HasId)


def paged(fetch: Callable[[int], Sequence[Row]], show: Callable[[Row], Data], limit: int) -> Page[Data]:
    """One page of what ``fetch(limit)`` finds. One row more than asked for is read, to know whether there is more."""
    rows = fetch(limit + 1)
    data = tuple(show(row) for row in rows[:limit])
    return Page(data=data, next=data[-1].id if len(rows) > limit else None)
