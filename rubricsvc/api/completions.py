"""``/v1/completions``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, IdInPath
from rubricsvc.queries import CompletionFilters
from rubricsvc.schemas import NewCompletions, Page, StoredCompletion, StoredIds
from rubricsvc.store import completions, prompts

router = APIRouter(prefix="/completions", tags=["completions"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses(404))
def add(db: Db, new: Json[NewCompletions]) -> StoredIds:
    """Store completions of one or several prompts. Identical content for a prompt is stored once."""
    with db.write() as session:
        for prompt_id in {item.prompt_id for item in new.completions}:
            prompts.get(session, prompt_id)
        pairs = ((item.prompt_id, item.completion) for item in new.completions)
        return StoredIds(ids=tuple(completions.add_many(session, pairs)))


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[CompletionFilters, Query()]) -> Page[StoredCompletion]:
    """List completions, oldest first."""
    return paginate(db, completions.page, StoredCompletion.of, query)


@router.get("/{completion_id}", responses=error_responses(404))
def get(db: Db, completion_id: IdInPath) -> StoredCompletion:
    """Get a completion."""
    with db.read() as session:
        return StoredCompletion.of(completions.get(session, completion_id))
