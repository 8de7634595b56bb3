"""``/v1/prompts``."""

from __future__ import annotations

from fastapi import APIRouter

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import After, Limit, paginate
from rubricsvc.api.request import Db, RefInPath
from rubricsvc.schemas import NewPrompt, Page, StoredPrompt
from rubricsvc.store import prompts
from rubricsvc.store.tables import PromptRow

router = APIRouter(prefix="/prompts", tags=["prompts"], route_class=StrictRoute)


def to_schema(row: PromptRow) -> StoredPrompt:
    """Return the wire type of a row."""
    return StoredPrompt.of(row, prompt=row.value)


@router.post("", status_code=201, responses=error_responses())
def add(db: Db, new: Json[NewPrompt]) -> StoredPrompt:
    """Store a prompt. Identical content is stored once."""
    with db.write() as session:
        return to_schema(prompts.add(session, new.prompt, new.external_id))


@router.get("", responses=error_responses())
def page(db: Db, after: After = 0, limit: Limit = 50) -> Page[StoredPrompt]:
    """List prompts, oldest first."""
    with db.read() as session:
        return paginate(lambda n: prompts.page(session, after=after, limit=n), to_schema, limit)


@router.get("/{ref:path}", responses=error_responses(404))
def get(db: Db, ref: RefInPath) -> StoredPrompt:
    """Get a prompt by id or external id."""
    with db.read() as session:
        return to_schema(prompts.get(session, ref))
