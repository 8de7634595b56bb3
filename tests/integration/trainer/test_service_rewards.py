"""Rewards of the service: one job for each step, and the rewards of a judge in this process."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.client import Client
from rubricsvc.settings import get_settings
from rubricsvc.store import judges
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine, agreeable
from tests.model.trainer.scored import COMPARES, JUDGE, TASKS, score, stored_jobs
from tests.model.trainer.tiny import share_of_a, tiny_config, tiny_policy
from tests.service_process import drained, running
from tests.services import free_port, wait_for
from trainer import loop
from trainer.recording import Metrics, RunRecorder
from trainer.recording import read as read_metrics
from trainer.rewards import CallableRewards, JobRewards, JudgeInfo, ScoredRollout
from workers import engines
from workers.engines.base import Failure, Question, Reply


@pytest.fixture
def engine(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstantEngine]:
    """The engine of the service's judges; their jobs are processed in threads."""
    made = InstantEngine()
    with db.write() as session:
        judges.add(session, JUDGE)
        judges.add(session, COMPARES)
    monkeypatch.setitem(engines.ENGINES, "instant", lambda _judge: made)
    with drained(db):
        yield made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client and the reward source retry at once."""
    monkeypatch.setattr(get_settings(), "outage_seconds", 0.05)
    monkeypatch.setattr("trainer.rewards.RETRY_SECONDS", 0.05)


@contextlib.contextmanager
def service_rewards(judge: str, url: str, **options: Any) -> Iterator[JobRewards]:
    with Client(url) as client:
        yield JobRewards(client, JudgeInfo(judge), **options)


@pytest.mark.usefixtures("impatient")
def test_service_rewards_wait_for_a_restarting_service(
    db: Database, engine: InstantEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked, back, scored = free_port(), threading.Event(), threading.Event(), list[ScoredRollout]()
    retries: list[object] = []
    monkeypatch.setattr("trainer.rewards.log.warning", lambda *args: retries.append(args))

    def answer(question: Question) -> Reply | Failure:
        asked.set()
        assert back.wait(60)
        return agreeable(question)

    engine.answer = answer
    with service_rewards("instant", f"http://127.0.0.1:{port}", timeout=60) as rewards:
        step = threading.Thread(target=lambda: scored.extend(score(rewards)))
        with running(db, at_port=port):
            step.start()
            assert asked.wait(60)
        wait_for(lambda: retries)
        with running(db, at_port=port):
            back.set()
            step.join(60)
    assert [result.reward.value for result in scored] == pytest.approx([2 / 3, 2 / 3, 1.0, 1.0])
    assert len(stored_jobs(db)) == 1


@pytest.mark.usefixtures("engine")
def test_run_of_a_service_is_recorded_there_with_the_items_of_its_jobs(db: Database, tmp_path: Path) -> None:
    stop = threading.Event()
    with (
        running(db) as url,
        service_rewards("instant", url, timeout=60) as rewards,
        Client(url, outage_seconds=0.0) as client,
        RunRecorder(client.runs, "key", tmp_path / "run", stop) as recorder,
    ):
        config = tiny_config(steps=2, out=tmp_path / "run")
        loop.train(tiny_policy(), TASKS[:2], rewards, config, stop=stop, recorder=recorder)
        run = client.runs.get(recorder.run_id or 0)
        rollouts = list(client.iterate(client.runs.rollouts, run.id))
        items = {item.id: item for job in (1, 2) for item in client.iterate(client.jobs.items, job)}
    assert (run.status, run.steps, run.rollouts, run.judge_id) == ("finished", 2, 16, 1)
    assert {one.item_id for one in rollouts} == set(items)
    for one in rollouts:
        item = items[one.item_id or 0]
        assert (one.completion_id, one.rubric_id, one.reward) == (item.completion_id, item.rubric_id, item.reward)
        assert one.verdicts == item.verdicts and one.judge_id == 1


def test_recorder_keeps_steps_while_the_service_is_away(db: Database, tmp_path: Path) -> None:
    port, stop, services = free_port(), threading.Event(), contextlib.ExitStack()
    with services, Client(f"http://127.0.0.1:{port}", timeout=5.0, outage_seconds=0.0) as client:
        services.enter_context(running(db, at_port=port))

        def on_step(step: Metrics) -> None:
            if step["step"] == 2:
                services.close()
            if step["step"] == 4:
                services.enter_context(running(db, at_port=port))

        config = tiny_config(out=tmp_path / "run")
        rewards = CallableRewards(share_of_a)
        with RunRecorder(client.runs, "key", tmp_path / "run", stop) as recorder:
            loop.train(tiny_policy(), TASKS[:2], rewards, config, stop=stop, recorder=recorder, on_step=on_step)
        run = client.runs.get(1)
        lines = [step.metrics for step in client.iterate(client.runs.steps, 1)]
    assert (run.status, run.steps, run.rollouts) == ("finished", 6, 48)
    assert lines == read_metrics(tmp_path / "run")
