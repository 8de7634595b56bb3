"""Rewards of the queue of this process's database: the rollouts of a training step are one job of its workers."""

from __future__ import annotations

from collections.abc import Sequence

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.services.reward_jobs import RewardJobs
from rubricsvc.services.rewarding import Batch
from trainer.data.tasks import Task
from trainer.rewards.jobs import JobRewards, scored_rollout
from trainer.rewards.source import JudgeInfo, ScoredRollout


class QueueRewards(JobRewards):
    """Stores prompts, rubrics and completions in a database, submits one job for each step, and waits for it.

    A rubric that is stored already is used under its name, so that rewards are joined to what people authored. The job
    groups its items by prompt and rubric, so a comparative judge is shown the same groups as in this process.

    Args:
        judge: the judge, which is stored under its name; one that is replaced there is refused.
        jobs: the jobs of the database; its workers score.
        run: name of the training run, shown in the names of its jobs.
        timeout: seconds that the scoring of one step may take; see `JobRewards`.
        allow_drafts: use rubrics that are stored as drafts.
        repeatability: the judge's measured one: the default floor of GRPO's standard deviation.
    """

    def __init__(
        self,
        judge: Judge,
        jobs: RewardJobs,
        *,
        run: str = "run",
        timeout: float = 1800.0,
        allow_drafts: bool = False,
        repeatability: Repeatability | None = None,
    ) -> None:
        super().__init__(run, timeout, jobs.address)
        self._judge, self._jobs = judge, jobs
        self._allow_drafts, self._repeatability = allow_drafts, repeatability

    def judge_info(self) -> JudgeInfo:
        """Return the judge's properties."""
        return JudgeInfo(self._judge.name, self._judge.calibrated, self._repeatability, self._judge.digest)

    def _score(
        self, tasks: Sequence[Task], completions: Sequence[Completion], timeout: float, submitted: set[int]
    ) -> list[ScoredRollout]:
        batch = Batch([task.prompt for task in tasks], [[one] for one in completions], [task.rubric for task in tasks])
        job = self._jobs.submit(
            self._judge,
            batch,
            run=self._run,
            step=completions[0].step,
            evaluated=self._evaluated,
            allow_drafts=self._allow_drafts,
            retry=not submitted,
        )
        submitted.add(job.id)
        reason = self._jobs.wait(job.id, timeout)
        found = self._jobs.results(job.id)
        results = zip((found[key] for key in job.items), tasks, strict=True)
        return [scored_rollout(item, task, reason) for item, task in results]
