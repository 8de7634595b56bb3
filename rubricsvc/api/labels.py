"""``/v1/labels``: what people found, to hold judges against."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import declared
from rubricsvc.api.pagination import After, Limit, paged
from rubricsvc.api.request import Db
from rubricsvc.core.base import Name
from rubricsvc.schemas import Id, NewLabels, Page, StoredLabel, StoredLabelIds
from rubricsvc.store import labels, rubrics
from rubricsvc.store.tables import LabelRow

router = APIRouter(prefix="/labels", tags=["labels"], route_class=StrictRoute)


def show(row: LabelRow) -> StoredLabel:
    return StoredLabel(
        id=row.id,
        created_at=row.created_at,
        completion_id=row.completion_id,
        rubric_id=row.rubric_id,
        label=row.label,
    )


@router.post("", status_code=201, responses=declared(404, 409))
def add(db: Db, new: Json[NewLabels]) -> StoredLabelIds:
    """Keep labels. 409 where a person has labelled the same otherwise, unless ``replace`` is true."""
    with db.write() as session:
        rubric_ids = {ref: rubrics.get(session, ref).id for ref in {item.rubric for item in new.labels}}
        placed = ((item.completion_id, rubric_ids[item.rubric], item.label) for item in new.labels)
        return StoredLabelIds(ids=tuple(labels.add_many(session, placed, replace=new.replace)))


@router.get("", responses=declared())
def page(
    db: Db,
    *,
    completion_id: Annotated[Id | None, Query()] = None,
    rubric_id: Annotated[Id | None, Query()] = None,
    annotator: Annotated[Name | None, Query()] = None,
    after: After = 0,
    limit: Limit = 100,
) -> Page[StoredLabel]:
    """All labels, oldest first; of one completion, rubric version or person, where asked."""
    where = {"completion_id": completion_id, "rubric_id": rubric_id}
    with db.read() as session:
        return paged(lambda n: labels.page(session, **where, annotator=annotator, after=after, limit=n), show, limit)
