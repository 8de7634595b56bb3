"""Rewards of the queue: a job for each step, scored by a Celery worker; the rewards of a judge in this process."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.errors import ConflictError
from rubricsvc.services.local import LocalService
from rubricsvc.settings import Settings
from rubricsvc.store import jobs, judges
from rubricsvc.store.session import Database, attach
from tests.instant_engine import InstantEngine, agreeable
from tests.model.trainer.scored import COMPARES, COMPLETIONS, JUDGE, TASKS, faulty, score, stored_jobs
from tests.model.trainer.tiny import tiny_config, tiny_policy
from tests.rows import replace_judge
from tests.scripted_server import ScriptedReply, labels, scripted_server
from tests.services import wait_for
from tests.worker_process import WorkerProcess, redis_url
from trainer import loop
from trainer.recording import History
from trainer.rewards import JobRewards, JudgeInfo, JudgeRewards, ScoredRollout
from workers import engines
from workers.queue.app import embedded_worker

YES = labels(Yes=0.9, No=0.1)


@pytest.fixture
def engine(each_db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstantEngine]:
    """The engine of the stored judges, asked by a Celery worker of this process."""
    made = InstantEngine()
    with each_db.write() as session:
        judges.add(session, JUDGE)
        judges.add(session, COMPARES)
    monkeypatch.setitem(engines.ENGINES, "instant", lambda _judge: made)
    with embedded_worker(Settings(database_url=each_db.url), each_db):
        yield made


def queue_rewards(db: Database, judge: Judge = JUDGE, **options: Any) -> JobRewards:
    info = JudgeInfo(judge.name, judge.calibrated, digest=judge.digest)
    return JobRewards(LocalService(db, approval="none"), info, **{"run": "first", "timeout": 60} | options)


def values(scored: list[ScoredRollout]) -> list[float | None]:
    return [result.reward.value for result in scored]


def test_queue_rewards_equal_those_of_this_process_in_one_job(each_db: Database, engine: InstantEngine) -> None:
    engine.answer = faulty
    scored = score(queue_rewards(each_db))
    with JudgeRewards(JUDGE, InstantEngine(faulty)) as local_rewards:
        local = score(local_rewards)
    assert values(scored) == values(local) == [None, None, 1.0, 1.0]
    assert [[v.outcome for v in r.verdicts] for r in scored] == [[v.outcome for v in r.verdicts] for r in local]
    assert stored_jobs(each_db) == [("first step 8", "completed_with_failures", 4)]
    with each_db.read() as session:
        stored = {row.id: row.reward for row in jobs.items(session, 1)}
    assert [stored[result.item_id or 0] for result in scored] == values(scored)


def test_queue_rewards_repeated_step_is_the_same_job(each_db: Database, engine: InstantEngine) -> None:
    """A step that is repeated, after a resume or not, asks about what failed and about nothing else."""
    engine.answer, engine.remember = faulty, 100
    rewards = queue_rewards(each_db)
    assert values(score(rewards)) == [None, None, 1.0, 1.0]
    engine.answer, engine.requests = agreeable, []
    assert values(score(rewards)) == pytest.approx([2 / 3, 2 / 3, 1.0, 1.0])
    assert [question.text.count("rude") for one in engine.requests for question in one.questions] == [1, 1]
    engine.requests = []
    assert values(score(queue_rewards(each_db))) == pytest.approx([2 / 3, 2 / 3, 1.0, 1.0])
    assert engine.requests == []
    assert stored_jobs(each_db) == [("first step 8", "completed", 4)]


@pytest.mark.usefixtures("engine")
def test_queue_rewards_refuse_a_replaced_judge(each_db: Database) -> None:
    rewards = queue_rewards(each_db)
    score(rewards)
    replace_judge(each_db, JUDGE)
    with pytest.raises(ConflictError, match="replaced"):
        rewards.score(TASKS, COMPLETIONS)
    assert len(stored_jobs(each_db)) == 1


def test_queue_rewards_absent_database_gives_no_reward(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> Any:
        raise OperationalError("SELECT", {}, ConnectionError("gone"))

    monkeypatch.setattr("trainer.rewards.RETRY_SECONDS", 0.05)
    monkeypatch.setattr("rubricsvc.services.jobs.judges.get", gone)
    scored = score(queue_rewards(db, timeout=0.2))
    assert values(scored) == [None] * 4 and all("gone" in str(result.reward.null_reason) for result in scored)


def remote(url: str, **endpoint: Any) -> Judge:
    options = {"base_url": url, "max_retries": 0, "outage_timeout_s": 0.0, "concurrency": 4}
    return Judge(name="remote", model="scripted", endpoint=Endpoint.model_validate(options | endpoint))


def test_train_survives_kill_9_of_the_only_worker(each_db: Database, tmp_path: Path) -> None:
    """The step waits, a new worker takes over once the leases have expired, and no verdict is asked for twice."""
    broker = redis_url()
    settings: dict[str, Any] = {"database_url": each_db.url, "broker_url": broker}
    settings |= {"lease_seconds": 3, "reconcile_seconds": 0.5}
    attach(each_db, Settings.model_validate(settings))
    log, started, histories = tmp_path / "log", list[WorkerProcess](), list[History]()

    def train() -> None:
        rewards = queue_rewards(each_db, judge, run="killed")
        histories.append(loop.train(tiny_policy(), [TASKS[2]], rewards, tiny_config(steps=2), on_step=get_stuck))

    def get_stuck(_step: dict[str, Any]) -> None:
        server.script = ScriptedReply(delay_s=600.0)

    with scripted_server(YES) as server:
        judge = remote(server.url)
        with each_db.write() as session:
            judges.add(session, judge)
        try:
            started.append(WorkerProcess(log, **settings))
            training = threading.Thread(target=train)
            training.start()
            wait_for(lambda: server.concurrent == 4, log)  # of the second step
            started[-1].kill()
            server.script = YES
            started.append(WorkerProcess(log, **settings))
            training.join(120)
        finally:
            for process in started:
                process.kill()
        (history,) = histories
        assert [step["unscored_fraction"] for step in history.steps] == [0.0, 0.0]
        finished = stored_jobs(each_db)
        expected = [("killed step 1", "completed"), ("killed step 2", "completed")]
        assert [(name, status) for name, status, _ in finished] == expected
        assert server.count == sum(count for *_, count in finished) + 4
