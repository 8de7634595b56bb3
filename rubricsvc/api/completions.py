"""``/v1/completions``: answers to prompts, and who gave them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import declared
from rubricsvc.api.pagination import After, Limit, paged
from rubricsvc.api.request import Db, IdInPath
from rubricsvc.core.base import Name
from rubricsvc.schemas import Id, NewCompletions, Page, StoredCompletion, StoredCompletionIds
from rubricsvc.store import completions, prompts
from rubricsvc.store.tables import CompletionRow

router = APIRouter(prefix="/completions", tags=["completions"], route_class=StrictRoute)


def show(row: CompletionRow) -> StoredCompletion:
    return StoredCompletion(
        id=row.id, created_at=row.created_at, digest=row.digest, prompt_id=row.prompt_id, completion=row.value
    )


@router.post("", status_code=201, responses=declared(404))
def add(db: Db, new: Json[NewCompletions]) -> StoredCompletionIds:
    """Keep completions, of one or of several prompts. The same content for a prompt is the same completion."""
    with db.write() as session:
        for prompt_id in {item.prompt_id for item in new.completions}:
            prompts.get(session, prompt_id)
        pairs = ((item.prompt_id, item.completion) for item in new.completions)
        return StoredCompletionIds(ids=tuple(completions.add_many(session, pairs)))


@router.get("", responses=declared())
def page(
    db: Db,
    prompt_id: Annotated[Id | None, Query(description="answers to this prompt")] = None,
    policy: Annotated[Name | None, Query(description="answers of this policy")] = None,
    after: After = 0,
    limit: Limit = 50,
) -> Page[StoredCompletion]:
    """All completions, oldest first."""
    with db.read() as session:
        return paged(
            lambda n: completions.page(session, after=after, limit=n, prompt_id=prompt_id, policy=policy), show, limit
        )


@router.get("/{completion_id}", responses=declared(404))
def get(db: Db, completion_id: IdInPath) -> StoredCompletion:
    """One completion."""
    with db.read() as session:
        return show(completions.get(session, completion_id))
