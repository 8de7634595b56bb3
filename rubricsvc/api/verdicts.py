"""``/v1/verdicts``: what judges found, criterion by criterion."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import StrictRoute
from rubricsvc.api.errors import declared
from rubricsvc.api.pagination import After, Limit, paged
from rubricsvc.api.request import Db
from rubricsvc.core.states import Outcome
from rubricsvc.schemas import Id, Page, StoredVerdict
from rubricsvc.store import verdicts
from rubricsvc.store.tables import VerdictRow

router = APIRouter(prefix="/verdicts", tags=["verdicts"], route_class=StrictRoute)


def show(row: VerdictRow) -> StoredVerdict:
    return StoredVerdict(
        id=row.id,
        created_at=row.created_at,
        completion_id=row.completion_id,
        rubric_id=row.rubric_id,
        judge_id=row.judge_id,
        verdict=row.verdict,
    )


@router.get("", responses=declared())
def page(
    db: Db,
    *,
    job_id: Annotated[Id | None, Query()] = None,
    completion_id: Annotated[Id | None, Query()] = None,
    outcome: Annotated[Outcome | None, Query()] = None,
    after: After = 0,
    limit: Limit = 100,
) -> Page[StoredVerdict]:
    """All verdicts, oldest first; of one job, completion or outcome, where asked."""
    with db.read() as session:
        return paged(
            lambda n: verdicts.page(
                session, job_id=job_id, completion_id=completion_id, outcome=outcome, after=after, limit=n
            ),
            show,
            limit,
        )
