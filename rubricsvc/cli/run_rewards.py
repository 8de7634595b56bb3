"""The rewards of `rubricsvc runs start`: the queue, a judge in this process, or a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rubricsvc.cli.db import database
from rubricsvc.cli.job_waiting import start_worker
from rubricsvc.cli.output import counted, echo
from rubricsvc.core.judge import Judge
from rubricsvc.settings import get_settings
from rubricsvc.store import judges, workers

if TYPE_CHECKING:
    from rubricsvc.core.repeatability import Repeatability
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import JudgeRow
    from trainer.config import RunConfig, ServiceJudge
    from trainer.rewards import JudgeRewards, RewardSource
    from trainer.service_rewards import ServiceRewards


def uses_database(config: RunConfig) -> bool:
    """Return whether the run's judge is in the database, or is stored there for the queue."""
    return isinstance(config.judge, str) or (isinstance(config.judge, Judge) and config.scored_by == "celery")


def stored_judge(db: Database, judge: Judge | str) -> JudgeRow:
    """Return the row of a judge; one that is given with its fields is stored under its name.

    Raises:
        NotFoundError: there is no judge of this name.
        ConflictError: the name means another judge.
        InvalidError: it cannot be asked.
    """
    from workers.engines.local.adapter_judges import with_adapter_fields
    from workers.judges import validate

    if isinstance(judge, str):
        with db.read() as session:
            return judges.get(session, judge)
    given = with_adapter_fields(judge)
    validate(given)
    with db.write() as session:
        return judges.add(session, given)


@contextmanager
def reward_source(
    run: RunConfig, judge: Judge | ServiceJudge, repeatability: Repeatability | None, allow_drafts: bool
) -> Iterator[RewardSource]:
    """Open the source of a run's rewards, and start a worker in this process where the queue has none."""
    if not isinstance(judge, Judge) or run.scored_by == "in_process":
        if isinstance(judge, Judge):
            echo("completions are scored in this process, not through the queue")
        with judge_source(run, judge, repeatability, allow_drafts) as source:
            yield source
        return
    from rubricsvc.services.reward_jobs import RewardJobs
    from trainer.queue_rewards import QueueRewards

    with database() as db, _worker(db, judge):
        yield QueueRewards(
            judge,
            RewardJobs(db, echo),
            run=run.out.name,
            timeout=run.score_timeout_s,
            allow_drafts=allow_drafts,
            repeatability=repeatability,
        )


def judge_source(
    run: RunConfig, judge: Judge | ServiceJudge, repeatability: Repeatability | None, allow_drafts: bool
) -> JudgeRewards | ServiceRewards:
    """Return the rewards of a judge that this process asks, or of one of a service."""
    from trainer.rewards import JudgeRewards
    from trainer.service_rewards import ServiceRewards

    if isinstance(judge, Judge):
        return JudgeRewards(judge, repeatability=repeatability)
    timeout, name = judge.timeout_s, run.out.name
    return ServiceRewards(judge.name, judge.service, run=name, timeout=timeout, allow_drafts=allow_drafts)


@contextmanager
def _worker(db: Database, judge: Judge) -> Iterator[None]:
    """Run a Celery worker in this process if no other one can be woken."""
    from rubricsvc.broker import MEMORY

    in_memory = get_settings().broker_url.startswith(MEMORY)
    with db.read() as session:
        running = 0 if in_memory else workers.running(session)
    if running:
        echo(f"completions are scored through the queue by {counted(running, 'running worker')}")
        yield
        return
    reason = "the broker is memory://" if in_memory else "no other worker is running"
    echo(f"completions are scored through the queue by a Celery worker in this process: {reason}")
    with start_worker(db, judge, keep_models=True):
        yield
