"""``/healthz`` (the process lives), ``/readyz`` (what it needs is there) and ``/metrics``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from rubricsvc.api.auth import authenticate
from rubricsvc.api.errors import declared
from rubricsvc.api.schemas import Ready
from rubricsvc.broker import check_broker
from rubricsvc.store.migrate import open_database

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Ready:
    """The process lives. Looks at nothing."""
    return Ready(status="ok")


@router.get("/readyz", responses=declared())
def readyz(request: Request) -> Ready:
    """Database at the newest schema, broker reachable; else 503 with which one is not."""
    open_database(request.app.state.settings.database_url).close()
    check_broker(request.app.state.settings.broker_url)
    return Ready(status="ok")


@router.get("/metrics", response_class=Response, responses=declared())
def metrics(request: Request, _: Annotated[None, Depends(authenticate)]) -> Response:
    """Prometheus text."""
    return Response(request.app.state.metrics.render(), media_type=CONTENT_TYPE_LATEST)
