"""``/v1/jobs/{id}/report``: the report of a job; other routes of jobs are in `routes`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from rubricsvc.api.body import StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.request import IdInPath, Service
from rubricsvc.errors import InvalidError
from rubricsvc.queries import ReportQuery

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=StrictRoute)

MAX_REPORT_ITEMS = 2000
"""About 4 seconds of reading."""


@router.get(
    "/{job_id}/report",
    response_model=None,
    responses={**error_responses(404), 200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
def get_report(service: Service, job_id: IdInPath, query: Annotated[ReportQuery, Query()]) -> HTMLResponse:
    """Get the report of a job as one HTML page that loads nothing: of at most 2,000 items, since it reads them all."""
    progress = service.jobs.get(job_id).progress
    if progress is not None and progress.total > MAX_REPORT_ITEMS:
        message = f"job {job_id} has {progress.total} items; a report over HTTP is limited to {MAX_REPORT_ITEMS}"
        raise InvalidError(
            message, hint=f"write it on the service's machine: `rubricsvc jobs export {job_id} --format html`"
        )
    return HTMLResponse(service.jobs.report(job_id, completions=query.completions))
