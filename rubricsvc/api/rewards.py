"""``/v1/rewards``: completions of many prompts scored in one call, for trainers that have their own loop."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from rubricsvc.api.auth import IdInPath, Service
from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.routes import IdempotencyKey
from rubricsvc.queries import RewardsQuery
from rubricsvc.schemas import NewRewards, Rewards
from rubricsvc.services.jobs import OPEN, in_order, open_ids
from rubricsvc.services.local import LocalService
from rubricsvc.store.session import Database

POLL_SECONDS = 0.05

router = APIRouter(prefix="/rewards", tags=["rewards"], route_class=StrictRoute)

_RESPONSES = {**error_responses(404, 409), 202: {"model": Rewards, "description": "The job is not finished."}}


@router.post("", responses=_RESPONSES)
async def submit(
    request: Request,
    service: Service,
    new: Json[NewRewards],
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> Rewards:
    """Score completions in one job, and wait for their rewards.

    200 with all rewards. 202 if the job is not finished after `timeout` seconds: read the rest by its id, here or under
    /v1/jobs, or send the same request again. Without an Idempotency-Key the same values return the same job.

    After an error nothing is stored, and `path` says what is wrong: 404 for something unknown, 422 for a rubric of
    another prompt or a wrong number of completions or rubrics, 409 as for POST /v1/jobs.
    """
    job_id, keys = await run_in_threadpool(
        service.rewards.begin, new.model_copy(update={"key": new.key or idempotency_key})
    )
    return in_order(await _waited(request, service, job_id, new.timeout, response), keys)


@router.get("/{job_id}", responses=_RESPONSES)
async def get(
    request: Request, service: Service, job_id: IdInPath, response: Response, query: Annotated[RewardsQuery, Query()]
) -> Rewards:
    """Get the rewards of a job, by completion id. 202 if it is not finished after `timeout` seconds."""
    return await _waited(request, service, job_id, query.timeout, response)


@dataclass(eq=False)
class JobWaits:
    """Reads the jobs that requests wait for: one query for all of them, however many there are."""

    db: Database
    _ids: set[int] = field(default_factory=set)
    _reading: asyncio.Task[set[int]] | None = None

    async def wait(self, job_id: int, timeout: float) -> None:
        """Return once a job has ended or is deleted, or after ``timeout`` seconds."""
        end, is_open = time.monotonic() + timeout, True
        while is_open and time.monotonic() < end:
            self._ids.add(job_id)
            self._reading = self._reading or asyncio.create_task(self._read())
            is_open = job_id in await asyncio.shield(self._reading)

    async def _read(self) -> set[int]:
        await asyncio.sleep(POLL_SECONDS)
        ids, self._ids, self._reading = self._ids, set(), None
        return await run_in_threadpool(open_ids, self.db, ids)


async def _waited(request: Request, service: LocalService, job_id: int, timeout: float, response: Response) -> Rewards:
    """Return the rewards of a job after a wait that holds no thread; set the status of the response."""
    await request.app.state.job_waits.wait(job_id, timeout)
    rewards = await run_in_threadpool(service.rewards.get, job_id)
    response.status_code = 200 if rewards.status not in OPEN else 202
    return rewards
