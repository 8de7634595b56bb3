"""The rewards of `rubricsvc runs start`: the queue, a judge in this process, or a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rubricsvc.cli.db import database
from rubricsvc.cli.job_waiting import check_engine, start_worker
from rubricsvc.cli.output import counted, echo
from rubricsvc.client import Client
from rubricsvc.core.judge import Judge
from rubricsvc.services.local import LocalService
from rubricsvc.settings import get_settings
from rubricsvc.store import judges, workers

if TYPE_CHECKING:
    from rubricsvc.core.repeatability import Repeatability
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import JudgeRow
    from trainer.config import RunConfig, ServiceJudge
    from trainer.rewards.source import RewardSource


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
    from workers.engines.local.weights import with_adapter_fields
    from workers.judges import validate

    if isinstance(judge, str):
        with db.read() as session:
            return judges.get(session, judge)
    given = with_adapter_fields(judge)
    validate(given)
    with db.write() as session:
        return judges.add(session, given)


class LocalQueue:
    """The queue of the database for all judges of a run, with a worker of this process if no other one is running."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._db: Database | None = None
        self._users = 0

    @contextmanager
    def use(self, judge: Judge) -> Iterator[Database]:
        """Open the queue for a judge. It is closed after its last user."""
        if self._db is None:
            with ExitStack() as opened:
                db = opened.enter_context(database())
                opened.enter_context(_worker(db, judge))
                self._opened, self._db = opened.pop_all(), db
        else:
            check_engine(judge)
        self._users += 1
        try:
            yield self._db
        finally:
            self._users -= 1
            if not self._users:
                self._db = None
                self._opened.close()


@contextmanager
def reward_source(
    run: RunConfig,
    judge: Judge | ServiceJudge,
    repeatability: Repeatability | None,
    allow_drafts: bool,
    queue: LocalQueue,
) -> Iterator[RewardSource]:
    """Open the rewards of a run by a judge, and start a worker in this process where the queue has none."""
    from trainer.rewards.jobs import JobRewards
    from trainer.rewards.source import JudgeInfo, JudgeRewards

    name = run.out.name
    if not isinstance(judge, Judge):
        outage = min(get_settings().outage_seconds, judge.timeout_s)
        with Client(judge.service, outage_seconds=outage) as client:
            info = JudgeInfo.of(client.judges.get(judge.name))
            yield JobRewards(client, info, run=name, timeout=judge.timeout_s, allow_drafts=allow_drafts)
    elif run.scored_by == "in_process":
        echo(f"completions are scored by {judge.name} in this process, not through the queue")
        with JudgeRewards(judge, repeatability=repeatability) as source:
            yield source
    else:
        info = JudgeInfo(judge.name, judge.calibrated, repeatability, judge.digest)
        with queue.use(judge) as db:
            service = LocalService(db, approval="none")
            yield JobRewards(service, info, run=name, timeout=run.score_timeout_s, allow_drafts=allow_drafts)


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
