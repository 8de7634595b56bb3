"""What the sources of rewards have in common that score a step by one job of a queue."""

from __future__ import annotations

import copy
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from rubricsvc.core.prompt import Completion
from rubricsvc.core.reward import Reward
from rubricsvc.errors import UnavailableError
from rubricsvc.schemas import Item
from rubricsvc.services.reward_jobs import GradedItem
from trainer.data.tasks import Task
from trainer.rewards.source import CELERY, ScoredRollout

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


JobItem = Item | GradedItem
"""An item of a job, as the service or the database has it."""


class JobRewards(ABC):
    """Scores each step by one job, and waits for it through outages.

    A step that is scored again, after a resume or because too few of its completions were scored, has the same job:
    only failed verdicts are asked for again.

    Args:
        run: name of the training run, shown in the names of its jobs.
        timeout: seconds that the scoring of one step may take, outages included. A job that is not finished by then is
            cancelled, and completions without a result have no reward.
        items_at: address of the database or service that has the jobs.
    """

    scored_by = CELERY

    def __init__(self, run: str, timeout: float, items_at: str) -> None:
        self._run, self._timeout = run, timeout
        self.items_at = items_at
        self._evaluated: str | None = None

    def of_evaluation(self, score: str) -> Self:
        """Return the source of this score of evaluations, whose jobs are not named like those of training steps."""
        other = copy.copy(self)
        other._evaluated = score
        return other

    def score(self, tasks: Sequence[Task], completions: Sequence[Completion]) -> list[ScoredRollout]:
        """Score the step in one job.

        Raises:
            NotFoundError: there is no such judge.
            ConflictError: the judge was replaced since the run began.
        """
        deadline = time.monotonic() + self._timeout
        submitted: set[int] = set()
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return self._score(tasks, completions, left, submitted)
            except UnavailableError as error:
                if not left:
                    nothing = [Reward(None, 0.0, task.rubric.formula, null_reason=str(error)) for task in tasks]
                    return [ScoredRollout(reward) for reward in nothing]
                log.warning("retrying for %.0f s: %s", left, error)
                time.sleep(RETRY_SECONDS)

    @abstractmethod
    def _score(
        self, tasks: Sequence[Task], completions: Sequence[Completion], timeout: float, submitted: set[int]
    ) -> list[ScoredRollout]:
        """Score the step once.

        ``submitted`` are the jobs of earlier attempts of this call, whose failed items are not asked about again; the
        job of this one is added.

        Raises:
            UnavailableError: the queue does not answer.
        """


def scored_rollout(item: JobItem | None, task: Task, reason: str | None) -> ScoredRollout:
    """Return the result of a completion; ``reason`` is why the job did not end, if it did not."""
    if item is None:
        reward = Reward(None, 0.0, task.rubric.formula, null_reason="the service returned no result")
        return ScoredRollout(reward)
    reward = Reward(
        item.reward,
        item.coverage or 0.0,
        item.formula or task.rubric.formula,
        vetoed_by=item.vetoed_by,
        null_reason=None if item.reward is not None else item.null_reason or reason or item.state,
    )
    return ScoredRollout(reward, item.verdicts, item.id)
