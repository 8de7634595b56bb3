"""``/v1/labels``: verdicts of people."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db
from rubricsvc.queries import LabelFilters
from rubricsvc.schemas import NewLabels, Page, StoredIds, StoredLabel
from rubricsvc.store import labels, rubrics

router = APIRouter(prefix="/labels", tags=["labels"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses(404, 409))
def add(db: Db, new: Json[NewLabels]) -> StoredIds:
    """Store labels. 409 if the annotator has a different label there, unless ``replace`` is true."""
    with db.write() as session:
        rubric_ids = {ref: rubrics.get(session, ref).id for ref in {item.rubric for item in new.labels}}
        rows = ((item.completion_id, rubric_ids[item.rubric], item.label) for item in new.labels)
        return StoredIds(ids=tuple(labels.add_many(session, rows, replace=new.replace)))


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[LabelFilters, Query()]) -> Page[StoredLabel]:
    """List labels, oldest first. Filter by completion, rubric version, annotator or job."""
    return paginate(db, labels.page, StoredLabel.of, query)
