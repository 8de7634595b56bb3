"""``/v1/prompts``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, RefInPath
from rubricsvc.queries import Paging
from rubricsvc.schemas import NewPrompt, Page, StoredPrompt
from rubricsvc.store import prompts

router = APIRouter(prefix="/prompts", tags=["prompts"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses())
def add(db: Db, new: Json[NewPrompt]) -> StoredPrompt:
    """Store a prompt. Identical content is stored once."""
    with db.write() as session:
        return StoredPrompt.of(prompts.add(session, new.prompt, new.external_id))


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[Paging, Query()]) -> Page[StoredPrompt]:
    """List prompts, oldest first."""
    return paginate(db, prompts.page, StoredPrompt.of, query)


@router.get("/{ref:path}", responses=error_responses(404))
def get(db: Db, ref: RefInPath) -> StoredPrompt:
    """Get a prompt by id or external id."""
    with db.read() as session:
        return StoredPrompt.of(prompts.get(session, ref))
