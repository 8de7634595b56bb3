"""Health: ``/healthz`` (liveness), ``/readyz`` (readiness) and ``/metrics``."""

from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rubricsvc.api.auth import authenticate
from rubricsvc.api.errors import error_responses
from rubricsvc.broker import check_broker
from rubricsvc.errors import UnavailableError
from rubricsvc.schemas.base import Alive, Ready
from rubricsvc.store import leases
from rubricsvc.store.session import see_ready

log = structlog.get_logger(__name__)

router = APIRouter(tags=["health"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> Alive:
    """Report that the process is alive."""
    return Alive(status="ok")


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=error_responses())
def readyz(request: Request) -> Ready:
    """Report whether the database is at the newest schema and the broker reachable. The log has the reason of a 503.

    A service without a running worker is ready: it accepts jobs, which wait. Watch `workers` here, or the metrics
    `rubricsvc_workers` and `rubricsvc_unattended_items`.
    """
    state = request.app.state
    for name, check, target in (("database", see_ready, state.db), ("broker", check_broker, state.settings.broker_url)):
        try:
            check(target)
        except UnavailableError as error:  # its message has addresses, and this endpoint is public
            log.warning("not_ready", component=name, error=error.message)
            raise UnavailableError(f"{name}: not ready", hint=error.hint) from error
    with state.db.read() as session:
        return Ready(status="ok", workers=leases.running_workers(session))


@router.get("/metrics", response_class=Response, responses=error_responses())
def metrics(request: Request, _: Annotated[None, Depends(authenticate)]) -> Response:
    """Return Prometheus metrics."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)
