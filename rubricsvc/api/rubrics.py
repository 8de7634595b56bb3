"""``/v1/rubrics``: versioned lists of criteria. A version never changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import declared
from rubricsvc.api.pagination import After, Limit, paged
from rubricsvc.api.request import Db, Examined, RefInPath
from rubricsvc.core.base import Name
from rubricsvc.schemas import Id, NewRubric, Page, StoredRubric
from rubricsvc.store import prompts, rubrics
from rubricsvc.store.tables import RubricRow

router = APIRouter(prefix="/rubrics", tags=["rubrics"], route_class=StrictRoute)


def show(row: RubricRow) -> StoredRubric:
    return StoredRubric(
        id=row.id,
        created_at=row.created_at,
        name=row.name,
        version=row.version,
        digest=row.digest,
        prompt_id=row.prompt_id,
        origin=row.origin,
        rubric=row.value,
    )


@router.post("", status_code=201, responses=declared(404))
def add(db: Db, examine: Examined, new: Json[NewRubric]) -> StoredRubric:
    """Keep a rubric as the next version of its name. The same content under a name is the same version."""
    examine.rubric(new.rubric)
    with db.write() as session:
        if new.prompt_id is not None:
            prompts.get(session, new.prompt_id)
        return show(rubrics.add(session, new.rubric, name=new.name, prompt_id=new.prompt_id, origin=new.origin))


@router.get("", responses=declared())
def page(
    db: Db,
    name: Annotated[Name | None, Query(description="the versions of this name")] = None,
    prompt_id: Annotated[Id | None, Query(description="those written for this prompt")] = None,
    after: After = 0,
    limit: Limit = 50,
) -> Page[StoredRubric]:
    """All versions of all rubrics, oldest first."""
    with db.read() as session:
        return paged(lambda n: rubrics.page(session, after=after, limit=n, name=name, prompt_id=prompt_id), show, limit)


@router.get("/{ref:path}", responses=declared(404))
def get(db: Db, ref: RefInPath) -> StoredRubric:
    """One version, by id, name (its newest version), name@version, or at least 8 digits of its digest."""
    with db.read() as session:
        return show(rubrics.get(session, ref))
