"""``/v1/judges``. A name refers to one judge forever; only its endpoint may change."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import RefInPath, Service
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.passport import Passport
from rubricsvc.queries import Paging
from rubricsvc.schemas import NewJudge, Page, StoredJudge

router = APIRouter(prefix="/judges", tags=["judges"], route_class=StrictRoute)


@router.post("", status_code=201, responses=error_responses(409))
def add(service: Service, new: Json[NewJudge]) -> StoredJudge:
    """Store a judge. 409 if the name belongs to a different judge, or to one with another endpoint or adapter folder.

    The service never asks a model: `rubricsvc judges probe NAME` asks two test questions.
    """
    return service.judges.add(new.judge)


@router.get("", responses=error_responses())
def page(service: Service, query: Annotated[Paging, Query()]) -> Page[StoredJudge]:
    """List judges, oldest first."""
    return service.judges.page(query)


@router.get("/{ref:path}/audits", responses=error_responses(404))
def page_audits(service: Service, ref: RefInPath, query: Annotated[Paging, Query()]) -> Page[StoredAudit]:
    """List the audits of a judge, oldest first. The last one counts."""
    return service.judges.audits(ref, query)


@router.get("/{ref:path}/passport", responses=error_responses(404))
def get_passport(service: Service, ref: RefInPath) -> Passport:
    """Get the passport of a trained judge: its data with licenses, its figures, what it must not be used for."""
    return service.judges.passport(ref)


@router.get("/{ref:path}", responses=error_responses(404))
def get(service: Service, ref: RefInPath) -> StoredJudge:
    """Get a judge by id or name."""
    return service.judges.get(ref)
