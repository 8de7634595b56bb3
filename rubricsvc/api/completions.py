"""``/v1/completions``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import After, Limit, paginate
from rubricsvc.api.request import Db, IdInPath
from rubricsvc.core.base import Name
from rubricsvc.schemas import Id, NewCompletions, Page, StoredCompletion, StoredIds
from rubricsvc.store import completions, prompts
from rubricsvc.store.tables import CompletionRow

router = APIRouter(prefix="/completions", tags=["completions"], route_class=StrictRoute)


def to_schema(row: CompletionRow) -> StoredCompletion:
    """Return the wire type of a row."""
    return StoredCompletion.of(row, completion=row.value)


@router.post("", status_code=201, responses=error_responses(404))
def add(db: Db, new: Json[NewCompletions]) -> StoredIds:
    """Store completions of one or several prompts. Identical content for a prompt is stored once."""
    with db.write() as session:
        for prompt_id in {item.prompt_id for item in new.completions}:
            prompts.get(session, prompt_id)
        pairs = ((item.prompt_id, item.completion) for item in new.completions)
        return StoredIds(ids=tuple(completions.add_many(session, pairs)))


@router.get("", responses=error_responses())
def page(
    db: Db,
    prompt_id: Annotated[Id | None, Query(description="Filter by prompt.")] = None,
    policy: Annotated[Name | None, Query(description="Filter by policy.")] = None,
    after: After = 0,
    limit: Limit = 50,
) -> Page[StoredCompletion]:
    """List completions, oldest first."""
    with db.read() as session:
        return paginate(
            lambda n: completions.page(session, after=after, limit=n, prompt_id=prompt_id, policy=policy),
            to_schema,
            limit,
        )


@router.get("/{completion_id}", responses=error_responses(404))
def get(db: Db, completion_id: IdInPath) -> StoredCompletion:
    """Get a completion."""
    with db.read() as session:
        return to_schema(completions.get(session, completion_id))
