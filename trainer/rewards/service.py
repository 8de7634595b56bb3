"""Rewards of a running service: the rollouts of a training step are one job of its queue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Self

from rubricsvc.client import Client
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.schemas import StoredJudge
from rubricsvc.services.reward_jobs import check_same_judge, job_key, job_name
from rubricsvc.services.rewarding import ItemKey
from rubricsvc.services.waiting import OPEN
from trainer.data.tasks import Task
from trainer.rewards.jobs import JobRewards, scored_rollout
from trainer.rewards.source import JudgeInfo, ScoredRollout, places_by_task


class ServiceRewards(JobRewards):
    """Submits each step to the service as one job, in one request that stores what is new, and waits for it.

    The job groups its items by prompt and rubric, so a comparative judge is shown the same groups as in this process.
    Its idempotency key covers run, step, judge and items: a request that is sent again, or a step that is repeated
    after a resume, waits for the same job instead of paying for another.

    Args:
        judge: name of the judge at the service.
        url: address of ``rubricsvc serve``.
        run: name of the training run, shown in the names of its jobs.
        allow_drafts: use rubrics that are stored at the service as drafts.
        timeout: seconds that the scoring of one step may take; see `JobRewards`.
    """

    def __init__(
        self, judge: str, url: str, *, run: str = "run", timeout: float = 1800.0, allow_drafts: bool = False
    ) -> None:
        super().__init__(run, timeout, url.rstrip("/"))
        self._judge = judge
        self._allow_drafts = allow_drafts
        self._client = Client(url)
        self._outage_seconds = self._client.outage_seconds
        self._pinned: str | None = None

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties, as the service has them.

        Raises:
            NotFoundError: the service has no such judge.
            InvalidError: what it has stored of the judge is not valid any more.
        """
        stored, judge = self._stored_judge()
        return JudgeInfo(judge.name, judge.calibrated, stored.repeatability, judge.digest)

    def _stored_judge(self) -> tuple[StoredJudge, Judge]:
        """Return the judge, which must be the same one at each call."""
        stored = self._client.judges.get(self._judge)
        if stored.judge is None:
            raise InvalidError(str(stored.error))
        self._pinned = self._pinned or stored.judge.digest
        check_same_judge(stored.judge, self._pinned)
        return stored, stored.judge

    def _score(
        self, tasks: Sequence[Task], completions: Sequence[Completion], timeout: float, submitted: set[int]
    ) -> list[ScoredRollout]:
        self._client.outage_seconds = min(self._outage_seconds, timeout)
        job_id, keys = self._submit(tasks, completions, submitted)
        reason = None
        try:
            self._client.wait(job_id, timeout)
        except TimeoutError as error:
            reason = f"cancelled: {error}"
            self._client.jobs.cancel(job_id)
        pages = self._client.iterate(self._client.jobs.items, job_id)
        items = {(item.completion_id, item.rubric_id): item for item in pages}
        return [scored_rollout(items.get(key), task, reason) for key, task in zip(keys, tasks, strict=True)]

    def _submit(
        self, tasks: Sequence[Task], completions: Sequence[Completion], submitted: set[int]
    ) -> tuple[int, list[ItemKey]]:
        """Submit the step's job; return its id and its item of each completion. Equal completions are one item.

        A job that an earlier call left with failures is retried.
        """
        judge, _ = self._stored_judge()
        groups, step = places_by_task(tasks), completions[0].step
        asked = [
            (task.prompt.digest, task.rubric.digest, one.digest) for task, one in zip(tasks, completions, strict=True)
        ]
        job = self._client.rewards.submit(
            judge.id,
            [tasks[at[0]].prompt for at in groups],
            [[completions[place] for place in at] for at in groups],
            [tasks[at[0]].rubric for at in groups],
            name=job_name(self._run, step, self._evaluated),
            key=job_key(self._run, step, judge.id, sorted(set(asked)), self._evaluated),
            allow_drafts=self._allow_drafts,
        )
        if len(job.rewards) != len(completions):
            raise RubricsvcError(f"the service returned {len(job.rewards)} items for {len(completions)} completions")
        if job.status not in (*OPEN, "completed") and not submitted:
            self._client.jobs.retry(job.job_id)
        submitted.add(job.job_id)
        keys = {
            place: (one.completion_id, one.rubric_id) for place, one in zip(chain(*groups), job.rewards, strict=True)
        }
        return job.job_id, [keys[place] for place in range(len(tasks))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
