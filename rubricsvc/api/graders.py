"""``/v1/graders``: run and validate OpenAI graders, with the requests and responses of OpenAI's API.

The same endpoints exist under ``/v1/fine_tuning/alpha/graders``, the path of OpenAI's client.
"""

import asyncio
import time

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import Field, JsonValue

from rubricsvc.api.auth import Service
from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.errors import UnavailableError
from rubricsvc.graders.model import GraderRun
from rubricsvc.schemas.base import Wire
from rubricsvc.services import graders as grading

NO_WORKER_SECONDS = 30.0  # seconds that a run waits for a worker, which may be starting

router = APIRouter(tags=["graders"], route_class=StrictRoute)
_ALIAS = "/fine_tuning/alpha/graders"


class GraderBody(Wire):
    """A grader to validate; the response is the same."""

    grader: dict[str, JsonValue] = Field(description="Grader, as OpenAI's JSON.")


class NewGraderRun(GraderBody):
    """A grader, the sample that it grades, and the item that its templates refer to."""

    model_sample: str = Field(description="Text of the sample.")
    item: dict[str, JsonValue] = Field(default_factory=dict, description="Fields that the grader's templates refer to.")


@router.post("/graders/validate", responses=error_responses())
@router.post(f"{_ALIAS}/validate", include_in_schema=False)
def validate(new: Json[GraderBody]) -> GraderBody:
    """Validate a grader. 422 with the path of the error."""
    grading.parsed(new.grader)
    return new


@router.post("/graders/run", responses=error_responses(404, 409))
@router.post(f"{_ALIAS}/run", include_in_schema=False)
async def run(request: Request, service: Service, new: Json[NewGraderRun]) -> GraderRun:
    """Run a grader on one sample and wait for the reward.

    A grader's `model` is the name of a judge, or else the model of the newest judge that has it. If the grader gives no
    number, `reward` is null and the flags give the reason. 404: unknown judge. 409: the same run is a job with a
    budget. 503: no worker in time; repeat the same request to continue.
    """
    began, state = time.monotonic(), request.app.state
    pending = await run_in_threadpool(grading.submit, service, new.grader, new.item, new.model_sample)
    longest, pause, seen = state.settings.grader_seconds, 0.02, began
    while True:  # no connection is held between two looks
        found = await run_in_threadpool(grading.result, service.db, pending, time.monotonic() - began)
        if isinstance(found, GraderRun):
            return found
        now = time.monotonic()
        waited, seen = now - began, now if found == "scoring" else seen
        if now - seen > min(NO_WORKER_SECONDS, longest):
            hint = "start one with `rubricsvc worker`, then repeat the request: it continues"
            raise UnavailableError(f"no worker is running; waited {waited:.0f} s", hint=hint)
        if waited > longest:
            hint = "repeat the request: it continues; RUBRICSVC_GRADER_SECONDS sets the limit"
            raise UnavailableError(f"the run is not finished after {waited:.0f} s", hint=hint)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.5)
