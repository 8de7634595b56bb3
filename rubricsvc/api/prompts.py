"""``/v1/prompts``: what the policy is asked."""

from __future__ import annotations

from fastapi import APIRouter

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import declared
from rubricsvc.api.pagination import After, Limit, paged
from rubricsvc.api.request import Db, RefInPath
from rubricsvc.schemas import NewPrompt, Page, StoredPrompt
from rubricsvc.store import prompts
from rubricsvc.store.tables import PromptRow

router = APIRouter(prefix="/prompts", tags=["prompts"], route_class=StrictRoute)


def show(row: PromptRow) -> StoredPrompt:
    return StoredPrompt(
        id=row.id, created_at=row.created_at, digest=row.digest, external_id=row.external_id, prompt=row.value
    )


@router.post("", status_code=201, responses=declared())
def add(db: Db, new: Json[NewPrompt]) -> StoredPrompt:
    """Keep a prompt. The same content is the same prompt."""
    with db.write() as session:
        return show(prompts.add(session, new.prompt, new.external_id))


@router.get("", responses=declared())
def page(db: Db, after: After = 0, limit: Limit = 50) -> Page[StoredPrompt]:
    """All prompts, oldest first."""
    with db.read() as session:
        return paged(lambda n: prompts.page(session, after=after, limit=n), show, limit)


@router.get("/{ref:path}", responses=declared(404))
def get(db: Db, ref: RefInPath) -> StoredPrompt:
    """One prompt, by id or by the id it had where it came from."""
    with db.read() as session:
        return show(prompts.get(session, ref))
