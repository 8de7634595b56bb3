"""``/v1/verdicts``: verdicts of judges on single criteria."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db
from rubricsvc.queries import VerdictFilters
from rubricsvc.schemas import Page, StoredVerdict
from rubricsvc.store import verdicts

router = APIRouter(prefix="/verdicts", tags=["verdicts"], route_class=StrictRoute)


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[VerdictFilters, Query()]) -> Page[StoredVerdict]:
    """List verdicts, oldest first. Filter by job, completion or outcome."""
    return paginate(db, verdicts.page, StoredVerdict.of, query)
