"""``/healthz`` (the process lives), ``/readyz`` (what it needs is there) and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from rubricsvc.api.auth import authenticate
from rubricsvc.api.errors import declared
from rubricsvc.broker import check_broker
from rubricsvc.errors import UnavailableError
from rubricsvc.schemas import Ready
from rubricsvc.store.migrate import see_ready

log = structlog.get_logger(__name__)

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Ready:
    """The process lives. Looks at nothing."""
    return Ready(status="ok")


@router.get("/readyz", responses=declared())
def readyz(request: Request) -> Ready:
    """Database at the newest schema, broker reachable; else 503 with which one is not. Why is in the service's log."""
    needed: dict[str, Callable[[], None]] = {
        "database": lambda: see_ready(request.app.state.db),
        "broker": lambda: check_broker(request.app.state.settings.broker_url),
    }
    for name, look in needed.items():
        try:
            look()
        except UnavailableError as error:  # its message tells addresses, and anybody may ask
            log.warning("not_ready", needed=name, error=error.message)
            raise UnavailableError(f"{name}: not ready", hint=error.hint) from error
    return Ready(status="ok")


@router.get("/metrics", response_class=Response, responses=declared())
def metrics(request: Request, _: Annotated[None, Depends(authenticate)]) -> Response:
    """Prometheus text."""
    return Response(request.app.state.metrics.render(), media_type=CONTENT_TYPE_LATEST)
