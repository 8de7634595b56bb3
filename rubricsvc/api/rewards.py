"""``/v1/rewards``: completions of many prompts scored in one call, for trainers that have their own loop."""

import asyncio
import contextlib
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool

from rubricsvc.api.auth import IdInPath, Service
from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.routes import IdempotencyKey
from rubricsvc.queries import RewardsQuery
from rubricsvc.schemas import NewRewards, Rewards
from rubricsvc.services.jobs import OPEN, POLL_SECONDS
from rubricsvc.services.local import LocalService
from rubricsvc.waiting import polling

router = APIRouter(prefix="/rewards", tags=["rewards"], route_class=StrictRoute)

_RESPONSES = {**error_responses(404, 409), 202: {"model": Rewards, "description": "The job is not finished."}}


@router.post("", responses=_RESPONSES)
async def submit(
    service: Service, new: Json[NewRewards], response: Response, idempotency_key: IdempotencyKey = None
) -> Rewards:
    """Score completions in one job, and wait for their rewards.

    200 with all rewards. 202 if the job is not finished after `timeout` seconds: read the rest by its id, here or under
    /v1/jobs, or send the same request again. Without an Idempotency-Key the same values return the same job.

    After an error nothing is stored, and `path` says what is wrong: 404 for something unknown, 422 for a rubric of
    another prompt or a wrong number of completions or rubrics, 409 as for POST /v1/jobs.
    """
    at_once = new.model_copy(update={"timeout": 0.0, "key": new.key or idempotency_key})
    submitted = await run_in_threadpool(service.rewards.submit, at_once)
    found = await _waited(service, submitted.job_id, new.timeout, response)
    by_id = {one.id: one for one in found.rewards}
    return found.model_copy(update={"rewards": tuple(by_id[one.id] for one in submitted.rewards)})


@router.get("/{job_id}", responses=_RESPONSES)
async def get(
    service: Service, job_id: IdInPath, response: Response, query: Annotated[RewardsQuery, Query()]
) -> Rewards:
    """Get the rewards of a job, by completion id. 202 if it is not finished after `timeout` seconds."""
    return await _waited(service, job_id, query.timeout, response)


async def _waited(service: LocalService, job_id: int, timeout: float, response: Response) -> Rewards:
    """Return the rewards of a job after a wait that holds no thread; set the status of the response."""
    next_delay = polling(job_id, timeout, None, lambda _: None, longest=POLL_SECONDS)
    with contextlib.suppress(TimeoutError):
        while timeout and (delay := next_delay(await run_in_threadpool(service.jobs.get, job_id))) is not None:
            await asyncio.sleep(delay)
    rewards = await run_in_threadpool(service.rewards.get, job_id)
    response.status_code = 200 if rewards.status not in OPEN else 202
    return rewards
