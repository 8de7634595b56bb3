"""``/v1/evolutions``: rubrics that labels or training runs improve."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from rubricsvc.api.body import StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import IdInPath, Service
from rubricsvc.core.evolution import EvolutionReport, EvolutionSummary
from rubricsvc.schemas import Page
from rubricsvc.schemas.evolutions import EvolutionFilters

router = APIRouter(prefix="/evolutions", tags=["evolutions"], route_class=StrictRoute)


@router.get("", responses=error_responses())
def page(service: Service, query: Annotated[EvolutionFilters, Query()]) -> Page[EvolutionSummary]:
    """List evolutions, oldest first, with how far each of them is."""
    return service.evolutions.page(query)


@router.get("/{evolution_id}", responses=error_responses(404))
def get(service: Service, evolution_id: IdInPath) -> EvolutionReport:
    """Get an evolution: the criteria of its buffer, its rounds, and what it gains on held-out prompts."""
    return service.evolutions.get(evolution_id)
