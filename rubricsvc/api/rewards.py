"""``/v1/rewards``: completions of many prompts scored in one call, for trainers that have their own loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool

from rubricsvc.api.auth import Caller
from rubricsvc.api.body import Json, StrictRoute
from rubricsvc.api.errors import error_responses
from rubricsvc.api.jobs import IdempotencyKey
from rubricsvc.api.request import Db, IdInPath, SettingsDep, ValidatorsDep
from rubricsvc.queries import RewardsQuery
from rubricsvc.schemas import CompletionReward, NewRewards, Rewards
from rubricsvc.services import rewarding
from rubricsvc.services.editing import Edit
from rubricsvc.services.rewarding import ItemKey
from rubricsvc.services.waiting import wait
from rubricsvc.store import items, jobs, workers
from rubricsvc.store.items import ItemReward
from rubricsvc.store.session import Database

router = APIRouter(prefix="/rewards", tags=["rewards"], route_class=StrictRoute)

_RESPONSES = {**error_responses(404, 409), 202: {"model": Rewards, "description": "The job is not finished."}}


@router.post("", responses=_RESPONSES)
async def submit(
    *,
    db: Db,
    settings: SettingsDep,
    caller: Caller,
    validators: ValidatorsDep,
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
    batch = rewarding.Batch(new.prompts, new.completions, new.rubrics)
    options = new.model_dump(include={"name", "budget", "min_coverage", "allow_drafts"})
    key = idempotency_key or new.key

    def store() -> tuple[int, list[ItemKey]]:
        edit = Edit(caller, policy=settings.require_approval)
        with db.write() as session:
            job, keys = rewarding.submit(
                session, new.judge, batch, edit, validate=validators.rubric, key=key, **options
            )
        return job.id, keys

    job_id, keys = await run_in_threadpool(store)
    await wait(db, job_id, new.timeout)
    return await run_in_threadpool(_read, db, job_id, response, keys)


@router.get("/{job_id}", responses=_RESPONSES)
async def get(db: Db, job_id: IdInPath, response: Response, query: Annotated[RewardsQuery, Query()]) -> Rewards:
    """Get the rewards of a job, by completion id. 202 if it is not finished after `timeout` seconds."""
    await wait(db, job_id, query.timeout)
    return await run_in_threadpool(_read, db, job_id, response)


def _read(db: Database, job_id: int, response: Response, keys: Sequence[ItemKey] | None = None) -> Rewards:
    """Return the rewards of these items of a job in this order, or of all; set the status of the response."""
    with db.read() as session:
        job = jobs.scoring(session, job_id)
        rows = {(row.completion_id, row.rubric_id): row for row in items.rewards(session, job_id)}
        running = None if job.finished_at else workers.running(session)
    if job.finished_at is None:
        response.status_code = 202
    rewards = tuple(_reward(rows[key], finished=job.finished_at is not None) for key in keys or rows)
    return Rewards.of(job, job_id=job_id, judge=job.judge.name, workers=running, rewards=rewards)


def _reward(row: ItemReward, *, finished: bool) -> CompletionReward:
    reason = row.null_reason or (row.state if finished and row.reward is None else None)
    return CompletionReward.of(row, rubric=f"{row.rubric}@{row.version}", null_reason=reason)
