"""``/v1/rewards``: completions of many prompts scored in one call, for trainers that have their own loop."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from rubricsvc.api.auth import IdInPath, Service
from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.routes import IdempotencyKey
from rubricsvc.queries import RewardsQuery
from rubricsvc.schemas.jobs import NewRewards, Rewards
from rubricsvc.services.jobs import OPEN, rewards_of, submit_rewards, unfinished
from rubricsvc.services.local import LocalService
from rubricsvc.store.session import Database

POLL_SECONDS = 0.05

router = APIRouter(prefix="/rewards", tags=["rewards"], route_class=StrictRoute)

_RESPONSES = {**error_responses(404, 409), 202: {"model": Rewards, "description": "The job is not finished."}}


@router.post("", responses=_RESPONSES)
async def submit(
    request: Request, service: Service, new: Json[NewRewards], answer: Response, idempotency_key: IdempotencyKey = None
) -> Rewards:
    """Score completions in one job, and wait for their rewards.

    200 with all rewards. 202 if the job is not finished after `timeout` seconds: read the rest by its id, here or under
    /v1/jobs, or send the same request again. Without an Idempotency-Key the same values return the same job.

    After an error nothing is stored, and `path` says what is wrong: 404 for something unknown, 422 for a rubric of
    another prompt, none or several, or a wrong number of completions, 409 as for POST /v1/jobs or for another judge.
    """
    with_key = new.model_copy(update={"key": new.key or idempotency_key})
    job_id, keys = await run_in_threadpool(submit_rewards, service.rewards, with_key)
    return rewards_of(keys, await _waited(request, service, job_id, new.timeout, answer))


@router.get("/{job_id}", responses=_RESPONSES)
async def get(
    request: Request, service: Service, job_id: IdInPath, response: Response, query: Annotated[RewardsQuery, Query()]
) -> Rewards:
    """Get the rewards of a job, by completion id. 202 if it is not finished after `timeout` seconds."""
    return await _waited(request, service, job_id, query.timeout, response)


@dataclass(eq=False)
class JobWaits:
    """Reads the jobs that requests wait for: one query for all of them, at most every ``POLL_SECONDS``."""

    db: Database
    _ids: set[int] = field(default_factory=set)
    _reading: asyncio.Task[set[int]] | None = None
    _next: float = 0.0

    async def wait(self, job_id: int, timeout: float) -> None:
        """Return once a job has ended or is deleted, or after ``timeout`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while timeout:
                    self._ids.add(job_id)
                    if self._reading is None or self._reading.done():
                        self._reading = asyncio.create_task(self._read())
                    if job_id not in await asyncio.shield(self._reading):
                        return

    async def _read(self) -> set[int]:
        await asyncio.sleep(self._next - time.monotonic())
        ids, self._ids, self._reading = self._ids, set(), None
        self._next = time.monotonic() + POLL_SECONDS
        return await run_in_threadpool(unfinished, self.db, ids)


async def _waited(request: Request, service: LocalService, job_id: int, timeout: float, response: Response) -> Rewards:
    """Return the rewards of a job after a wait that holds no thread; set the status of the response."""
    await request.app.state.job_waits.wait(job_id, timeout)
    rewards = await run_in_threadpool(service.rewards.get, job_id)
    response.status_code = 200 if rewards.status not in OPEN else 202
    return rewards
