"""Rewards of a running service: the rollouts of a training step are one job of its queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from rubricsvc.client import Client
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion
from rubricsvc.errors import InvalidError, RubricsvcError
from rubricsvc.schemas import StoredJob, StoredJudge
from rubricsvc.services.reward_jobs import ItemKey, check_same_judge, job_key, job_name
from trainer.job_rewards import JobRewards, scored_rollout
from trainer.rewards import JudgeInfo, ScoredRollout, Task, places_by_task


class ServiceRewards(JobRewards):
    """Stores prompts, rubrics and completions at the service, submits one job for each step, and waits for it.

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
        super().__init__(run, timeout)
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
        keys = self._store(tasks, completions)
        job = self._submit(completions[0].step, sorted(set(keys)), submitted)
        reason = None
        try:
            self._client.wait(job.id, timeout)
        except TimeoutError as error:
            reason = f"cancelled: {error}"
            self._client.jobs.cancel(job.id)
        pages = self._client.iterate(self._client.jobs.items, job.id)
        items = {(item.completion_id, item.rubric_id): item for item in pages}
        return [scored_rollout(items.get(key), task, reason) for key, task in zip(keys, tasks, strict=True)]

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

    def _submit(self, step: int | None, items: Sequence[ItemKey], submitted: set[int]) -> StoredJob:
        """Submit the step's job. One that an earlier call left with failures is retried."""
        stored, _ = self._stored_judge()
        key = job_key(self._run, step, stored.id, items)
        name = job_name(self._run, step)
        job = self._client.jobs.submit(stored.id, items, name=name, key=key, allow_drafts=self._allow_drafts)
        if job.finished and job.status != "completed" and not submitted:
            job = self._client.jobs.retry(job.id).job
        submitted.add(job.id)
        return job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
