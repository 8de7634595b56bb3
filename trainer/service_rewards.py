"""Rewards of a running service: the rollouts of a training step are one job of its queue."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Self

from rubricsvc.client import AsyncClient
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from rubricsvc.errors import UnavailableError, cut
from rubricsvc.schemas import Item, StoredJob, StoredJudge
from trainer.judge_info import JudgeInfo
from trainer.rewards import BackgroundLoop, ScoredRollout, Task, TaskGroup, groups_by_task, in_order

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
_MAX_RUN_NAME = 150  # a job's name has at most 200 characters

ItemKey = tuple[int, int]
"""Completion id and rubric id: a job holds each pair once."""


class ServiceRewards:
    """Stores prompts, rubrics and completions at the service, submits one job for each step, and waits for it.

    The job groups its items by prompt and rubric, so a comparative judge is shown the same groups as in this process.
    Its idempotency key covers run, step, judge and items: a request that is sent again, or a step that is repeated
    after a resume, waits for the same job instead of paying for another.

    Args:
        judge: a judge, or the name of one that the service has.
        url: address of ``rubricsvc serve``.
        run: name of the training run, shown in the names of its jobs; by default a random one.
        timeout: seconds that the scoring of one step may take, waiting for a service that is down included. A job that
            is not finished by then is cancelled, and completions without a result have no reward.
        client: client to use instead of one made for ``url``.
    """

    def __init__(
        self,
        judge: Judge | str,
        url: str,
        *,
        run: str | None = None,
        timeout: float = 1800.0,
        client: AsyncClient | None = None,
    ) -> None:
        self._judge = judge
        self._run = cut(run, _MAX_RUN_NAME) if run else f"run-{uuid.uuid4().hex[:8]}"
        self._timeout = timeout
        self._client = client or AsyncClient(url)
        self._submitted: set[str] = set()
        self._loop = BackgroundLoop()

    async def _fetch_judge(self) -> StoredJudge:
        if isinstance(self._judge, Judge):
            return await self._client.judges.add(self._judge)
        return await self._client.judges.get(self._judge)

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties, as the service has them.

        Raises:
            NotFoundError: the service has no such judge.
        """
        stored = self._loop.run(self._fetch_judge())
        return JudgeInfo(stored.judge.name, stored.judge.calibrated, stored.repeatability)

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score the step in one job.

        Raises:
            NotFoundError: the service has no such judge.
        """
        groups = groups_by_task(tasks, completions)
        return in_order(groups, self._loop.run(self._score(groups)))

    async def _score(self, groups: Sequence[TaskGroup]) -> list[list[ScoredRollout]]:
        deadline = time.monotonic() + self._timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return await self._score_once(groups, left)
            except UnavailableError as error:
                if not left:
                    return [[_unscored(group, str(error))] * len(group.places) for group in groups]
                log.warning("retrying for %.0f s: %s", left, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _score_once(self, groups: Sequence[TaskGroup], timeout: float) -> list[list[ScoredRollout]]:
        keys = await asyncio.gather(*map(self._store, groups))
        job = await self._submit(groups, sorted({key for group in keys for key in group}))
        reason = None
        try:
            await self._client.wait(job.id, timeout)
        except TimeoutError as error:
            reason = f"cancelled: {error}"
            await self._client.jobs.cancel(job.id)
        items = {
            (item.completion_id, item.rubric_id): item
            async for item in self._client.iterate(self._client.jobs.items, job.id)
        }
        return [
            [_result(items[key], group.task, reason) for key in group_keys]
            for group, group_keys in zip(groups, keys, strict=True)
        ]

    async def _store(self, group: TaskGroup) -> list[ItemKey]:
        """Store a group's values and return the job's item of each completion. Equal completions are one item."""
        rubric = group.task.rubric
        prompt_id = (await self._client.prompts.add(group.task.prompt)).id
        rubric_id = (await self._client.rubrics.add(rubric, f"rubric-{rubric.digest[:12]}")).id
        stored = await self._client.completions.add(prompt_id, group.completions)
        return [(completion_id, rubric_id) for completion_id in stored.ids]

    async def _submit(self, groups: Sequence[TaskGroup], items: Sequence[ItemKey]) -> StoredJob:
        """Submit the step's job. One that an earlier process left with failures is retried."""
        judge_id = (await self._fetch_judge()).id
        step = groups[0].completions[0].step
        name = self._run if step is None else f"{self._run} step {step}"
        key = digest(self._run, step, judge_id, items)
        job = await self._client.jobs.submit(judge_id, items, name=name, key=key)
        if job.finished and job.status != "completed" and key not in self._submitted:
            job = (await self._client.jobs.retry(job.id)).job
        self._submitted.add(key)
        return job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()


def _result(item: Item, task: Task, reason: str | None) -> ScoredRollout:
    null_reason = None if item.reward is not None else item.null_reason or reason or item.state
    reward = Reward(item.reward, item.coverage or 0.0, item.formula or task.rubric.formula, null_reason=null_reason)
    return ScoredRollout(reward, item.verdicts)


def _unscored(group: TaskGroup, reason: str) -> ScoredRollout:
    return ScoredRollout(Reward(None, 0.0, group.task.rubric.formula, null_reason=reason))
