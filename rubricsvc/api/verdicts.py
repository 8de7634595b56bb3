"""``/v1/verdicts``: verdicts of judges on single criteria."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import After, Limit, paginate
from rubricsvc.api.request import Db
from rubricsvc.core.states import Outcome
from rubricsvc.schemas import Id, Page, StoredVerdict
from rubricsvc.store import verdicts

router = APIRouter(prefix="/verdicts", tags=["verdicts"], route_class=StrictRoute)


@router.get("", responses=error_responses())
def page(
    db: Db,
    *,
    job_id: Annotated[Id | None, Query()] = None,
    completion_id: Annotated[Id | None, Query()] = None,
    outcome: Annotated[Outcome | None, Query()] = None,
    after: After = 0,
    limit: Limit = 100,
) -> Page[StoredVerdict]:
    """List verdicts, oldest first. Filter by job, completion or outcome."""
    with db.read() as session:
        return paginate(
            lambda n: verdicts.page(
                session, job_id=job_id, completion_id=completion_id, outcome=outcome, after=after, limit=n
            ),
            StoredVerdict.of,
            limit,
        )
