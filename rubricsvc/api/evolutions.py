"""``/v1/evolutions``: rubrics evolved against labels, by `rubricsvc evolve start`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from rubricsvc.api.body import StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.pagination import paginate
from rubricsvc.api.request import Db, IdInPath
from rubricsvc.core.evolution import EvolutionReport, EvolutionSummary
from rubricsvc.queries import Paging
from rubricsvc.schemas import Page
from rubricsvc.services.evolution_reports import evolution_report, evolution_summaries
from rubricsvc.store import evolutions

router = APIRouter(prefix="/evolutions", tags=["evolutions"], route_class=StrictRoute)


@router.get("", responses=error_responses())
def page(db: Db, query: Annotated[Paging, Query()]) -> Page[EvolutionSummary]:
    """List evolutions, oldest first, with how far each of them is."""

    def fetch(session: Session, **paging: int) -> list[EvolutionSummary]:
        return evolution_summaries(session, evolutions.page(session, **paging))

    return paginate(db, fetch, lambda one: one, query)


@router.get("/{evolution_id}", responses=error_responses(404))
def get(db: Db, evolution_id: IdInPath) -> EvolutionReport:
    """Get an evolution: its candidates with their lineage, the best one, and what it gains on held-out prompts."""
    with db.read() as session:
        return evolution_report(session, evolution_id)
