"""What a training run needs before anything is loaded: its judges and its prompts, found and checked."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rubricsvc.cli.db import database
from rubricsvc.cli.local_judges import describe_embedded
from rubricsvc.cli.models import fetch_embedded, fetch_if_embedded
from rubricsvc.cli.output import counted, echo
from rubricsvc.cli.run_data import RunTasks, run_tasks
from rubricsvc.cli.run_evaluation import print_evaluation_plan, with_eval_judges
from rubricsvc.cli.run_evolution import print_evolution_plan, with_judges
from rubricsvc.cli.run_judge import AuditStatus, judge_of_run
from rubricsvc.cli.run_references import check_references
from rubricsvc.cli.run_rewards import LocalQueue, reward_source, uses_database
from rubricsvc.core.judge import Judge
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.services.submitting import veto_warning
from rubricsvc.store import rubrics
from workers.engines.local.embedded_model import EMBEDDED

if TYPE_CHECKING:
    from trainer.config import RunConfig, ServiceJudge
    from trainer.data.tasks import Task
    from trainer.rewards.source import RewardSource


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run whose judges and prompts were found; nothing is loaded yet."""

    config: RunConfig
    judge: Judge | ServiceJudge
    audit: AuditStatus
    repeatability: Repeatability | None
    tasks: RunTasks
    allow_drafts: bool
    queue: LocalQueue = field(default_factory=LocalQueue)

    def rewards(self, judge: Judge | ServiceJudge | None = None) -> AbstractContextManager[RewardSource]:
        """Open the reward source of the run, or that of a judge of its evaluations."""
        repeatability = self.repeatability if judge is None else None
        return reward_source(self.config, judge or self.judge, repeatability, self.allow_drafts, self.queue)


def prepare(loaded: RunConfig, allow_drafts: bool) -> PreparedRun:
    """Find the judges and the prompts of a run, before anything is loaded."""
    from trainer.local_only import check_local

    check_references(loaded)
    judge, audit, repeatability = judge_of_run(loaded)
    run = with_eval_judges(with_judges(loaded.model_copy(update={"judge": judge})))
    check_local(run)
    tasks = run_tasks(run)
    if not allow_drafts:
        _reject_drafts(loaded, [*tasks.train, *tasks.held_out, *tasks.other])
    return PreparedRun(run, judge, audit, repeatability, tasks, allow_drafts)


def _reject_drafts(config: RunConfig, tasks: list[Task]) -> None:
    """Raise NotApprovedError if rubrics of the tasks are drafts in the judge's database; a service does so itself."""
    if not uses_database(config):
        return
    with database() as db, db.read() as session:
        drafts = rubrics.only_drafts(session, {task.rubric.digest for task in tasks})
        rubrics.reject_drafts(session, [row.id for row in drafts])


def print_plan(prepared: PreparedRun, resume: bool) -> None:
    """Print what a run will do, and fetch the embedded model where it is needed."""
    config, judge, tasks = prepared.config, prepared.judge, prepared.tasks.train
    sampling, policy = config.sampling, config.policy
    verb = "resume training" if resume else "train"
    echo(f"{verb} {policy.model} ({policy.dtype}) for {config.steps} steps in {config.out}")
    repeated = ", repeated" if sampling.prompts_per_step > len(tasks) else ""
    prompts = f"{counted(sampling.prompts_per_step, 'prompt')} (of {len(tasks)}{repeated})"
    echo(f"each step: {prompts}, {sampling.group_size} completions each, judge {judge.name}")
    if config.evolve is not None:
        print_evolution_plan(config.evolve)
    if isinstance(judge, Judge):
        required = sorted({repr(key) for task in tasks for key in task.rubric.judged_required})
        if warning := veto_warning(judge, required):
            echo(f"warning: {warning}")
        describe_embedded([judge])
        fetch_if_embedded(judge)
    print_evaluation_plan(config, prepared.tasks.held_out)
    if policy.model == EMBEDDED:
        fetch_embedded()
    echo(prepared.audit.message)
