"""``/v1/prompts``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import RefInPath, Service
from rubricsvc.queries import Paging
from rubricsvc.schemas import NewPrompt, Page, StoredPrompt

router = APIRouter(prefix="/prompts", tags=["prompts"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses())
def add(service: Service, new: Json[NewPrompt]) -> StoredPrompt:
    """Store a prompt. Identical content is stored once."""
    return service.prompts.add(new)


@router.get("", responses=error_responses())
def page(service: Service, query: Annotated[Paging, Query()]) -> Page[StoredPrompt]:
    """List prompts, oldest first."""
    return service.prompts.page(query)


@router.get("/{ref:path}", responses=error_responses(404))
def get(service: Service, ref: RefInPath) -> StoredPrompt:
    """Get a prompt by id or external id."""
    return service.prompts.get(ref)
