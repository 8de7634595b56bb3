"""Rewards of a queue: each step is one job of a service, in this process or over HTTP, whose workers score it."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Self

from rubricsvc.client import Client
from rubricsvc.core.fingerprint import digest
from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.schemas import Item, NewRewards, StoredJob
from rubricsvc.services.jobs import OPEN, reachable
from rubricsvc.services.local import LocalService
from trainer.data.tasks import Task
from trainer.rewards.source import CELERY, JudgeInfo, ScoredRollout, places_by_task

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
NO_WORKER_SECONDS = 60.0
"""How long a job without a running worker is waited for."""


class _NoWorkerError(Exception):
    pass


class JobRewards:
    """Scores each step by one job, in one request that stores what is new, and waits for it through outages.

    A rubric that is stored already is used under its name, so that rewards are joined to what people authored. The job
    groups its items by prompt and rubric, so a comparative judge is shown the same groups as in this process. Its key
    covers run, step, judge and completions: a step that is scored again, after a resume or because too few of its
    completions were scored, has the same job, and only failed verdicts are asked for again.

    Args:
        service: The service that has the queue; the caller closes it.
        judge: A judge that is stored there. Another one of the same name is refused if the digest is given.
        run: Name of the training run, shown in the names of its jobs.
        timeout: Seconds that the scoring of one step may take, outages included. A job that is not finished by then is
            cancelled, and completions without a result have no reward.
        allow_drafts: Use rubrics that are stored as drafts.
    """

    scored_by = CELERY

    def __init__(
        self,
        service: LocalService | Client,
        judge: JudgeInfo,
        *,
        run: str = "run",
        timeout: float = 1800.0,
        allow_drafts: bool = False,
    ) -> None:
        self._service, self._judge = service, judge
        self._run, self._timeout, self._allow_drafts = run, timeout, allow_drafts
        self.items_at = service.address
        self._evaluated: str | None = None

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties."""
        return self._judge

    def of_evaluation(self, score: str) -> Self:
        """Return the source of this score of evaluations, whose jobs are not named like those of training steps."""
        other = copy.copy(self)
        other._evaluated = score
        return other

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score the step in one job."""
        deadline = time.monotonic() + self._timeout
        submitted: set[int] = set()
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                with reachable():
                    return self._score(tasks, completions, left, submitted)
            except UnavailableError as error:
                if not left:
                    nothing = [Reward(None, 0.0, task.rubric.formula, null_reason=str(error)) for task in tasks]
                    return [ScoredRollout(reward) for reward in nothing]
                log.warning("retrying for %.0f s: %s", left, error)
                time.sleep(RETRY_SECONDS)

    def _score(
        self, tasks: Sequence[Task], completions: Sequence[Completion], timeout: float, submitted: set[int]
    ) -> list[ScoredRollout]:
        """Score the step once.

        ``submitted`` are the jobs of earlier attempts of this call, whose failed items are not asked about again; the
        job of this one is added.
        """
        groups = places_by_task(tasks)
        job = self._service.rewards.submit(self._request(tasks, completions, groups))
        if len(job.rewards) != len(completions):
            raise RubricsvcError(f"the service returned {len(job.rewards)} items for {len(completions)} completions")
        if job.status not in (*OPEN, "completed") and not submitted:
            self._service.jobs.retry(job.job_id)
        submitted.add(job.job_id)
        reason = self._wait(job.job_id, timeout)
        found = {item.id: item for item in self._items(job.job_id)}
        ids = dict(zip(chain(*groups), (one.id for one in job.rewards), strict=True))
        return [_scored_rollout(found.get(ids[place]), task, reason) for place, task in enumerate(tasks)]

    def _request(
        self, tasks: Sequence[Task], completions: Sequence[Completion], groups: Sequence[Sequence[int]]
    ) -> NewRewards:
        step = completions[0].step
        name = self._run if step is None else f"{self._run} step {step + 1}"
        if self._evaluated is not None and step is not None:
            name = f"{self._run} eval step {step}, {self._evaluated}"
        asked = {
            (task.prompt.digest, task.rubric.digest, one.digest) for task, one in zip(tasks, completions, strict=True)
        }
        return NewRewards(
            judge=self._judge.name,
            judge_digest=self._judge.digest,
            prompts=tuple(tasks[at[0]].prompt for at in groups),
            completions=tuple(tuple(completions[place] for place in at) for at in groups),
            rubrics=tuple(tasks[at[0]].rubric for at in groups),
            timeout=0.0,
            name=name,
            key=digest(self._run, step, self._judge.digest or self._judge.name, sorted(asked), self._evaluated),
            allow_drafts=self._allow_drafts,
        )

    def _wait(self, job_id: int, timeout: float) -> str | None:
        """Wait until a job has ended; return None, or why it is waited for no longer."""
        served_at = time.monotonic()

        def check(job: StoredJob) -> None:
            nonlocal served_at
            now = time.monotonic()
            served_at = served_at if job.workers == 0 else now
            if now - served_at > NO_WORKER_SECONDS:
                raise _NoWorkerError

        try:
            self._service.jobs.wait(job_id, timeout, check)
        except _NoWorkerError:
            return f"no worker is running; job {job_id} waits for one"
        except TimeoutError as error:
            self._service.jobs.cancel(job_id)
            return f"cancelled: {error}"
        return None

    def _items(self, job_id: int) -> Iterator[Item]:
        after: int | None = 0
        while after is not None:
            page = self._service.jobs.items(job_id, after=after, limit=1000)
            yield from page
            after = page.next


def _scored_rollout(item: Item | None, task: Task, reason: str | None) -> ScoredRollout:
    """Return the result of a completion; ``reason`` is why the job did not end, if it did not."""
    if item is None:
        reward = Reward(None, 0.0, task.rubric.formula, null_reason="the service returned no result")
        return ScoredRollout(reward)
    reward = Reward(
        item.reward,
        item.coverage or 0.0,
        item.formula or task.rubric.formula,
        vetoed_by=item.vetoed_by,
        null_reason=None if item.reward is not None else reason or item.null_reason or item.state,
    )
    return ScoredRollout(reward, item.verdicts, item.id)
