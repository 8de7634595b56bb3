"""Keyset pagination: ``?after=ID&limit=N`` in, ``{"data": […], "next": ID or null}`` out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rubricsvc.core.audit import StoredAudit
from rubricsvc.queries import Paging
from rubricsvc.schemas import Item, Page, Stored
from rubricsvc.store.session import Database

Row = TypeVar("Row")
Data = TypeVar("Data", bound=Stored | Item | StoredAudit)


def paginate(
    db: Database, fetch: Callable[..., Sequence[Row]], to_schema: Callable[[Row], Data], query: Paging
) -> Page[Data]:
    """Return one page of the rows of ``fetch(session, **query)``. One extra row is read to know whether more follow."""
    parameters: dict[str, Any] = query.model_dump() | {"limit": query.limit + 1}
    with db.read() as session:
        rows = fetch(session, **parameters)
        data = tuple(to_schema(row) for row in rows[: query.limit])
    return Page(data=data, next=data[-1].id if len(rows) > query.limit else None)
