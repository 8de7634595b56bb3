"""Rewards from a judge in this process and from the service: the same rubric, the same judge, the same rewards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rubricsvc.client import Client
from rubricsvc.core.calibration import Calibration, Curve
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import NotFoundError
from rubricsvc.settings import Settings
from rubricsvc.store import jobs, outbox
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine, agreeable
from tests.integration.test_client import running
from tests.preference_engine import Tasteful, answers_in
from tests.services import free_port
from trainer.rewards import CallableRewards, JudgeRewards, RewardSource, Scored, ServiceRewards, Task
from workers import engines
from workers.engines.base import Failure, Question, Reply
from workers.queue.drain import Drainer

RUBRIC = Rubric(
    criteria=[Criterion(key="a", text="Is good.", weight=3), Criterion(key="b", text="Is rude.", weight=-1)]
)
OTHER = Rubric(criteria=[Criterion(key="c", text="Is short.")])
JUDGE = Judge(name="instant", engine="instant", model="m", threshold=0.5)
TASKS = [Task(Prompt.of("one"), RUBRIC)] * 2 + [Task(Prompt.of("two"), OTHER)] * 2
TEXTS = ["first", "second", "", "first"]


def score(rewards: RewardSource) -> list[Scored]:
    return rewards.score(TASKS, [Completion(text=text) for text in TEXTS])


def faulty(question: Question) -> Reply | Failure:
    """The judge of `agreeable`, with a timeout whenever rudeness is asked about."""
    return Failure(Reason.TIMEOUT, "too slow") if "rude" in question.text else agreeable(question)


def test_a_function() -> None:
    with CallableRewards(lambda prompt, text: len(text) if prompt.text == "one" else None) as rewards:
        found = score(rewards)
    assert [item.reward.value for item in found] == [5, 6, None, None]


def test_a_judge_in_this_process() -> None:
    with JudgeRewards(JUDGE, InstantEngine()) as rewards:
        found, again = score(rewards), score(rewards)
    assert [item.reward.value for item in found] == pytest.approx([2 / 3, 2 / 3, 1.0, 1.0])
    assert [[verdict.criterion for verdict in item.verdicts] for item in found] == [
        ["a", "b"],
        ["a", "b"],
        ["c"],
        ["c"],
    ]
    assert [item.reward for item in again] == [item.reward for item in found]


def test_a_failed_verdict_is_no_reward() -> None:
    with JudgeRewards(JUDGE, InstantEngine(faulty)) as rewards:
        found = score(rewards)
    assert [item.reward.value for item in found] == [None, None, 1.0, 1.0]
    assert found[0].verdicts[1].reason == Reason.TIMEOUT


def test_a_failure_that_breaks_the_formulas_rule_is_no_reward() -> None:
    """HealthBench divides by the positive weights; with the only one failed there is nothing to divide by."""
    criteria = [Criterion(key="good", text="Is rude."), Criterion(key="bad", text="Is wrong.", weight=-1)]
    task = Task(Prompt.of("x"), Rubric(criteria=criteria, formula="healthbench", min_coverage=0.0))
    with JudgeRewards(JUDGE, InstantEngine(faulty)) as rewards:
        [found] = rewards.score([task], [Completion(text="y")])
    assert found.reward.value is None
    assert "positive weight" in str(found.reward.null_reason)


@pytest.fixture
def engine(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstantEngine]:
    """The service's judge; its jobs are worked off in threads."""
    made = InstantEngine()
    monkeypatch.setitem(engines.ENGINES, "instant", lambda _judge: made)
    threads: list[threading.Thread] = []

    def send(_task: str, args: list[object]) -> None:
        threads.append(threading.Thread(target=Drainer(db, Settings(database_url=db.url)).run, args=args))
        threads[-1].start()

    db.after_ring = lambda: (outbox.relay(db, send), None)[1]
    yield made
    for thread in threads:
        thread.join()


@pytest.mark.integration
def test_the_service_gives_what_the_process_gives(db: Database, engine: InstantEngine) -> None:
    engine.answer = faulty
    with running(db) as url:
        with Client(url) as client:
            client.judges.add(JUDGE)
        with ServiceRewards("instant", url, timeout=60) as rewards:
            found = score(rewards)
    with JudgeRewards(JUDGE, InstantEngine(faulty)) as rewards_here:
        here = score(rewards_here)
    assert [item.reward.value for item in found] == [item.reward.value for item in here] == [None, None, 1.0, 1.0]
    assert [[v.outcome for v in item.verdicts] for item in found] == [[v.outcome for v in i.verdicts] for i in here]


@pytest.mark.integration
def test_what_the_service_does_not_finish_in_time_is_no_reward(db: Database) -> None:
    with running(db) as url, ServiceRewards(JUDGE, url, timeout=0.1) as rewards:
        found = score(rewards)
    assert [item.reward.value for item in found] == [None] * 4
    assert "not finished" in str(found[0].reward.null_reason)
    with db.read() as session:  # nobody pays for answers that nobody waits for
        assert [job.status for job in jobs.page(session)] == ["cancelled", "cancelled"]


@pytest.mark.integration
def test_a_service_that_restarts_does_not_end_the_step(
    db: Database, engine: InstantEngine, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setattr("rubricsvc.client.transport.MAX_DELAY_S", 0.01)  # the client itself gives up at once
    monkeypatch.setattr("trainer.rewards._PAUSE_SECONDS", 0.05)
    port, asked, back, found = free_port(), threading.Event(), threading.Event(), list[Scored]()

    def once_it_is_back(question: Question) -> Reply | Failure:
        asked.set()
        assert back.wait(60)
        return agreeable(question)

    engine.answer = once_it_is_back
    with ServiceRewards(JUDGE, f"http://127.0.0.1:{port}", timeout=60) as rewards:
        step = threading.Thread(target=lambda: found.extend(score(rewards)))
        with running(db, at_port=port):
            step.start()
            assert asked.wait(60)
        until = time.monotonic() + 60
        while "trying again" not in "".join(logged) and time.monotonic() < until:
            time.sleep(0.02)
        with running(db, at_port=port):
            back.set()
            step.join(60)
    assert "the service cannot be reached" in "".join(logged)
    assert [item.reward.value for item in found] == pytest.approx([2 / 3, 2 / 3, 1.0, 1.0])
    with db.read() as session:
        assert len(jobs.page(session)) == 2, "the same jobs were waited for again"


def test_a_service_that_stays_away_is_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricsvc.client.transport.MAX_DELAY_S", 0.01)
    monkeypatch.setattr("trainer.rewards._PAUSE_SECONDS", 0.05)
    with ServiceRewards("any", f"http://127.0.0.1:{free_port()}", timeout=0.3) as rewards:
        found = score(rewards)
    assert [item.reward.value for item in found] == [None] * 4
    assert "cannot be reached" in str(found[0].reward.null_reason)


@pytest.mark.integration
def test_a_judge_that_the_service_does_not_know(db: Database) -> None:
    with running(db) as url, ServiceRewards("nobody", url) as rewards, pytest.raises(NotFoundError):
        score(rewards)


@pytest.mark.integration
def test_each_source_knows_whether_its_judge_is_calibrated(db: Database) -> None:
    curves = Calibration(families={"binary": Curve(method="none")})
    calibrated = JUDGE.model_copy(update={"name": "calibrated", "calibration": curves})
    with running(db) as url:
        with Client(url) as client:
            client.judges.add(calibrated)
        with ServiceRewards("calibrated", url) as there, JudgeRewards(JUDGE, InstantEngine()) as here:
            assert (there.calibrated, here.calibrated) == (True, False)


COMPARES = Judge(name="compares", engine="instant", model="m", mode="comparative")
MIXED = [TASKS[2], TASKS[0], TASKS[3], TASKS[1]]
ANSWERS = [Completion(text=text) for text in ("one", "two", "seven", "eleven")]


def by_length(text: str) -> float:
    return len(text) / 10


def test_a_comparative_judge_is_shown_the_group_of_each_task() -> None:
    engine = Tasteful(by_length)
    with JudgeRewards(COMPARES, engine) as rewards:
        found = rewards.score(MIXED, ANSWERS)
    shown = sorted(sorted(answers_in(request.shared).values()) for request in engine.requests)
    assert shown == [["eleven", "two"], ["one", "seven"]]
    assert [item.reward.value for item in found] == pytest.approx([0.3, 0.2, 0.5, 0.4])


@pytest.mark.integration
def test_a_comparative_judge_at_the_service_is_shown_the_same_groups(
    db: Database, engine: InstantEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.ENGINES, "instant", lambda _judge: Tasteful(by_length))
    with running(db) as url, ServiceRewards(COMPARES, url, timeout=60) as rewards:
        found = rewards.score(MIXED, ANSWERS)
    with JudgeRewards(COMPARES, Tasteful(by_length)) as rewards_here:
        here = rewards_here.score(MIXED, ANSWERS)
    assert [item.reward.value for item in found] == [item.reward.value for item in here]
    assert [[v.value for v in item.verdicts] for item in found] == [[v.value for v in i.verdicts] for i in here]
