"""Rewards of a running service: the rollouts of a training step are one job of its queue."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Self

from rubricsvc.client import Client
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from rubricsvc.errors import InvalidError, RubricsvcError, UnavailableError
from rubricsvc.schemas import Item, StoredJob
from trainer.rewards import JudgeInfo, ScoredRollout, Task, places_by_task

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0

ItemKey = tuple[int, int]
"""Completion id and rubric id: a job holds each pair once."""


class ServiceRewards:
    """Stores prompts, rubrics and completions at the service, submits one job for each step, and waits for it.

    The job groups its items by prompt and rubric, so a comparative judge is shown the same groups as in this process.
    Its idempotency key covers run, step, judge and items: a request that is sent again, or a step that is repeated
    after a resume, waits for the same job instead of paying for another.

    Args:
        judge: name of the judge at the service.
        url: address of ``rubricsvc serve``.
        run: name of the training run, shown in the names of its jobs.
        allow_drafts: use rubrics that are stored at the service as drafts.
        timeout: seconds that the scoring of one step may take, waiting for a service that is down included. A job that
            is not finished by then is cancelled, and completions without a result have no reward.
    """

    def __init__(
        self, judge: str, url: str, *, run: str = "run", timeout: float = 1800.0, allow_drafts: bool = False
    ) -> None:
        self._judge = judge
        self._run = run
        self._timeout = timeout
        self._allow_drafts = allow_drafts
        self._client = Client(url)
        self._outage_seconds = self._client.outage_seconds
        self._submitted: set[str] = set()

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties, as the service has them.

        Raises:
            NotFoundError: the service has no such judge.
            InvalidError: what it has stored of the judge is not valid any more.
        """
        stored = self._client.judges.get(self._judge)
        if stored.judge is None:
            raise InvalidError(str(stored.error))
        return JudgeInfo(stored.judge.name, stored.judge.calibrated, stored.repeatability, stored.judge.digest)

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score the step in one job.

        Raises:
            NotFoundError: the service has no such judge.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            self._client.outage_seconds = min(self._outage_seconds, left)
            try:
                return self._score(tasks, completions, left)
            except UnavailableError as error:
                if not left:
                    nothing = [Reward(None, 0.0, task.rubric.formula, null_reason=str(error)) for task in tasks]
                    return [ScoredRollout(reward) for reward in nothing]
                log.warning("retrying for %.0f s: %s", left, error)
                time.sleep(RETRY_SECONDS)

    def _score(self, tasks: Sequence[Task], completions: Sequence[Completion], timeout: float) -> list[ScoredRollout]:
        keys = self._store(tasks, completions)
        job = self._submit(completions[0].step, sorted(set(keys)))
        reason = None
        try:
            self._client.wait(job.id, timeout)
        except TimeoutError as error:
            reason = f"cancelled: {error}"
            self._client.jobs.cancel(job.id)
        pages = self._client.iterate(self._client.jobs.items, job.id)
        items = {(item.completion_id, item.rubric_id): item for item in pages}
        return [_result(items.get(key), task, reason) for key, task in zip(keys, tasks, strict=True)]

    def _store(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ItemKey]:
        """Store a step's values and return the job's item of each completion. Equal completions are one item."""
        keys: dict[int, ItemKey] = {}
        for at in places_by_task(tasks):
            task = tasks[at[0]]
            prompt_id = self._client.prompts.add(task.prompt).id
            rubric_id = self._client.rubrics.add(task.rubric, f"rubric-{task.rubric.digest[:12]}").id
            ids = self._client.completions.add(prompt_id, [completions[i] for i in at]).ids
            if len(ids) != len(at):
                raise RubricsvcError(f"the service stored {len(ids)} of {len(at)} completions")
            keys |= {place: (completion_id, rubric_id) for place, completion_id in zip(at, ids, strict=True)}
        return [keys[place] for place in range(len(tasks))]

    def _submit(self, step: int | None, items: Sequence[ItemKey]) -> StoredJob:
        """Submit the step's job. One that an earlier process left with failures is retried."""
        judge_id = self._client.judges.get(self._judge).id
        name = self._run if step is None else f"{self._run} step {step + 1}"
        key = digest(self._run, step, judge_id, items)
        job = self._client.jobs.submit(judge_id, items, name=name, key=key, allow_drafts=self._allow_drafts)
        if job.finished and job.status != "completed" and key not in self._submitted:
            job = self._client.jobs.retry(job.id).job
        self._submitted.add(key)
        return job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def _result(item: Item | None, task: Task, reason: str | None) -> ScoredRollout:
    if item is None:
        return ScoredRollout(Reward(None, 0.0, task.rubric.formula, null_reason="the service returned no result"))
    reward = Reward(
        item.reward,
        item.coverage or 0.0,
        item.formula or task.rubric.formula,
        vetoed_by=item.vetoed_by,
        null_reason=None if item.reward is not None else item.null_reason or reason or item.state,
    )
    return ScoredRollout(reward, item.verdicts, item.id)
