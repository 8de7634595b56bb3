"""Workers are killed with SIGKILL while a job runs: every item is scored exactly once.

Real worker processes, a real Redis, a judge behind a real socket; on SQLite and on PostgreSQL.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.settings import Settings
from rubricsvc.store import jobs
from rubricsvc.store.session import Database, attach
from rubricsvc.store.tables import ItemRow, VerdictRow
from tests.rows import RUBRIC, status_of, submit_job
from tests.scripted_server import ScriptedReply, ScriptedServer, labels, scripted_server, wait_for_calls
from tests.services import wait_for
from tests.worker_process import WorkerProcess, redis_url

ITEMS = 300
KILLS = 30
WORKERS = 2


class Pace:
    """A judge that answers soon while the kills keep up with the work, and slowly when the work is ahead of them."""

    def __init__(self) -> None:
        self.kills = 0

    def __call__(self, number: int, _request: dict[str, Any]) -> ScriptedReply:
        wanted = ITEMS * len(RUBRIC.criteria) * self.kills / KILLS
        ahead = number > wanted + 24 and self.kills < KILLS
        answer = labels(Yes=0.8, No=0.1)
        return ScriptedReply(answer.text, answer.logprobs, delay_s=5.0 if ahead else random.uniform(0.0, 0.1))


@pytest.fixture
def judge_server() -> Iterator[tuple[ScriptedServer, Pace]]:
    pace = Pace()
    with scripted_server(pace, remember=False) as server:
        yield server, pace


@pytest.mark.timeout(500)
def test_workers_score_every_item_once_when_killed(
    each_db: Database, judge_server: tuple[ScriptedServer, Pace], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, pace = judge_server
    settings = {
        "database_url": each_db.url, "broker_url": redis_url(),
        "claim_size": 8, "lease_seconds": 3, "reconcile_seconds": 0.5, "max_leases": 10_000,
    }  # fmt: skip
    judge = Judge(name="paced", model="scripted", endpoint=Endpoint(base_url=server.url, max_retries=0))
    attach(each_db, Settings.model_validate(settings))
    job = submit_job(each_db, ITEMS, judge=judge)
    workers = [WorkerProcess(tmp_path / "log", "--concurrency=1", **settings) for _ in range(WORKERS)]
    try:
        while pace.kills < KILLS and status_of(each_db, job) in ("queued", "in_progress"):
            wait_for_calls(server, 1)
            time.sleep(random.uniform(0.0, 0.5))
            victim = random.randrange(WORKERS)
            workers[victim].kill()
            pace.kills += 1
            workers[victim] = WorkerProcess(tmp_path / "log", "--concurrency=1", **settings)
        killed_in_time = pace.kills
        wait_for(lambda: status_of(each_db, job) == "completed", tmp_path / "log", seconds=120)
    finally:
        for worker in workers:
            worker.kill()
    assert killed_in_time >= KILLS
    lost, doubled = check_history(each_db, job)
    with capsys.disabled():
        print(
            f"\n{each_db.engine.dialect.name}: {killed_in_time} workers killed, {lost} leases lost and taken again, "
            f"{ITEMS} items and {ITEMS * len(RUBRIC.criteria)} verdicts written once, {doubled} doubled, "
            f"{server.count} judge calls"
        )


def check_history(db: Database, job: int) -> tuple[int, int]:
    """Return lost leases and duplicate verdicts; assert the rest of the history."""
    with db.read() as session:
        progress = jobs.progress(session, job)
        states = set(session.scalars(select(ItemRow.state).where(ItemRow.job_id == job)))
        rewards = set(session.scalars(select(ItemRow.reward).where(ItemRow.job_id == job)))
        lost = session.scalar(select(func.sum(ItemRow.lost)).where(ItemRow.job_id == job)) or 0
        names = select(VerdictRow.completion_id, VerdictRow.criterion)
        total, distinct = len(session.execute(names).all()), len(session.execute(names.distinct()).all())
    assert states == {"done"}
    assert progress.done == ITEMS and progress.failed_verdicts == 0
    assert list(rewards) == [pytest.approx(0.8 / 0.9)]
    assert distinct == ITEMS * len(RUBRIC.criteria) and total == distinct
    assert lost > 0, "no kill interrupted anything: the test did not test"
    return lost, total - distinct
