"""``/v1/rubrics``: immutable versions of named rubrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import After, Limit, paginate
from rubricsvc.api.request import Db, RefInPath, ValidatorsDep
from rubricsvc.core.base import Name
from rubricsvc.schemas import Id, NewRubric, Page, StoredRubric
from rubricsvc.store import prompts, rubrics
from rubricsvc.store.tables import RubricRow

router = APIRouter(prefix="/rubrics", tags=["rubrics"], route_class=StrictRoute)


def to_schema(row: RubricRow) -> StoredRubric:
    """Return the wire type of a row."""
    return StoredRubric.of(row, rubric=row.value)


@router.post("", status_code=201, responses=error_responses(404))
def add(db: Db, validators: ValidatorsDep, new: Json[NewRubric]) -> StoredRubric:
    """Store a rubric as the next version of its name. Identical content under a name is the same version."""
    validators.rubric(new.rubric)
    with db.write() as session:
        if new.prompt_id is not None:
            prompts.get(session, new.prompt_id)
        return to_schema(rubrics.add(session, new.rubric, name=new.name, prompt_id=new.prompt_id, origin=new.origin))


@router.get("", responses=error_responses())
def page(
    db: Db,
    name: Annotated[Name | None, Query(description="Filter by name.")] = None,
    prompt_id: Annotated[Id | None, Query(description="Filter by prompt.")] = None,
    after: After = 0,
    limit: Limit = 50,
) -> Page[StoredRubric]:
    """List rubric versions, oldest first."""
    with db.read() as session:
        return paginate(
            lambda n: rubrics.page(session, after=after, limit=n, name=name, prompt_id=prompt_id), to_schema, limit
        )


@router.get("/{ref:path}", responses=error_responses(404))
def get(db: Db, ref: RefInPath) -> StoredRubric:
    """Get a version by id, name (newest version), name@version, or at least 8 digits of its digest."""
    with db.read() as session:
        return to_schema(rubrics.get(session, ref))
