"""Keyset pagination: ``?after=ID&limit=N`` in, ``{"data": […], "next": ID or null}`` out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Protocol, TypeVar

from fastapi import Query

from rubricsvc.core.base import MAX_ID
from rubricsvc.schemas import MAX_LIMIT, Page, Whole

After = Annotated[Whole, Query(ge=0, le=MAX_ID, description="`next` of the previous page")]
Limit = Annotated[Whole, Query(ge=1, le=MAX_LIMIT, description="maximum rows")]


class HasId(Protocol):
    """A row of a response."""

    @property
    def id(self) -> int:
        """Database id."""


Row = TypeVar("Row")
Data = TypeVar("Data", bound=HasId)


def paginate(fetch: Callable[[int], Sequence[Row]], to_schema: Callable[[Row], Data], limit: int) -> Page[Data]:
    """Return one page of the rows of ``fetch(limit)``. One extra row is read to know whether more follow."""
    rows = fetch(limit + 1)
    data = tuple(to_schema(row) for row in rows[:limit])
    return Page(data=data, next=data[-1].id if len(rows) > limit else None)
