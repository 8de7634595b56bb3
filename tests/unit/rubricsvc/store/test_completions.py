"""Samples are stored once for each number; the best rollouts; what running workers receive and may claim."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.services.runs import Runs
from rubricsvc.services.workers import Workers
from rubricsvc.store import completions, leases, runs
from rubricsvc.store.session import Database, relay
from rubricsvc.store.tables import OutboxRow
from tests.recorded_run import new_run, run_step
from tests.rows import add_completion, add_worker, submit_job

SETTINGS = Completion(policy="p", sampling={"model": "m", "temperature": 1.0, "seed": None})


def sample(number: int, text: str, **sampling: float) -> Completion:
    return Completion(text=text, policy="p", sampling={**SETTINGS.sampling, "sample": number, **sampling})


def test_add_samples_stores_each_number_once(each_db: Database) -> None:
    with each_db.write() as session:
        one, two = (completions.add_prompt(session, Prompt.of(text)).id for text in ("One?", "Two?"))
        add_completion(session, Completion(text="imported", policy="p"), one)
        add_completion(session, sample(7, "hotter", temperature=2.0), one)
        assert len(completions.add_samples(session, [(one, sample(0, "a")), (one, sample(1, "a"))])) == 2
        cut_off = sample(1, "another text").model_copy(
            update={"sampling": sample(1, "").sampling | {"truncated": True}}
        )
        again = [(one, cut_off), (one, sample(2, "b")), (two, sample(1, "c")), (one, sample(7, "colder"))]
        assert len(completions.add_samples(session, again)) == 3


def test_best_rollouts_are_those_with_the_highest_rewards_newest_first(each_db: Database) -> None:
    """Rollouts without a reward, and those of other runs, do not count."""
    store = Runs(each_db)
    for key in ("first", "second"):
        store.create(new_run(key))
    for step, reward in enumerate((0.2, 0.9, None, 0.9), 1):
        store.record(1, run_step(step, reward=reward))
    store.record(2, run_step(1, reward=1.0))
    with each_db.read() as session:
        best = runs.rollouts(session, 1, limit=5, best=True)
        assert [(row.step, row.reward) for row in best] == [(4, 0.9), (4, 0.9), (2, 0.9), (2, 0.9), (1, 0.2)]
        assert best[0].id > best[1].id and best[0].rubric.ref


JUDGE = Judge(name="j", model="m")


def messages(db: Database) -> int:
    with db.read() as session:
        return session.scalar(select(func.count()).where(OutboxRow.sent_at.is_(None))) or 0


@pytest.mark.parametrize(
    ("running", "items", "sent"), [((), 5, 1), ((1, 1, 1), 40, 3), ((1, 1, 1), 2, 2), ((1,), 70, 1), ((1, 2), 40, 3)]
)
def test_submit_wakes_each_process_of_running_workers(
    each_db: Database, running: tuple[int, ...], items: int, sent: int
) -> None:
    for number, processes in enumerate(running):
        add_worker(each_db, f"worker {number}", processes=processes)
    add_worker(each_db, "killed", age=leases.REPORT_SECONDS * leases.MISSED_REPORTS + 5)
    submit_job(each_db, items, judge=JUDGE)
    assert messages(each_db) == sent


def test_release_wakes_workers_for_the_released_items(each_db: Database) -> None:
    for number in range(3):
        add_worker(each_db, f"worker {number}")
    submit_job(each_db, 5, judge=JUDGE)
    read: list[int] = []
    relay(each_db, lambda _task, args: read.append(args[1]))
    with each_db.write() as session:
        for message_id in read[1:]:  # one is on its way still
            leases.take_message(session, message_id)
        leases.release(session, leases.claim(session, 1, limit=2, worker="w", seconds=60))
    assert messages(each_db) == 1


def share(db: Database, held: int, limit: int = 32) -> int:
    with db.read() as session:
        return leases.fair_share(session, 1, limit=limit, held=held)[0]


def claim(db: Database, worker: str, limit: int) -> int:
    with db.write() as session:
        return len(leases.claim(session, 1, limit=limit, worker=worker, seconds=60))


def test_fair_share_is_equal_for_processes_that_come_one_after_another(each_db: Database) -> None:
    add_worker(each_db, "a", processes=2)
    add_worker(each_db, "c")
    submit_job(each_db, 40, judge=JUDGE)
    assert [claim(each_db, name, share(each_db, held=0)) for name in "abc"] == [14, 14, 12]
    assert share(each_db, held=14) == 0


def test_fair_share_divides_what_an_absent_worker_leaves(each_db: Database) -> None:
    for name in "abc":
        add_worker(each_db, name)
    submit_job(each_db, 40, judge=JUDGE)
    held: list[int] = []
    while part := share(each_db, held=sum(held)):
        held.append(claim(each_db, "a", part))
    assert (held[:3], sum(held)) == ([14, 9, 6], 40)


def test_fair_share_is_at_most_the_limit_which_an_only_worker_has(each_db: Database) -> None:
    submit_job(each_db, 3, judge=JUDGE)
    assert share(each_db, held=0) == 32
    add_worker(each_db, "a")
    assert share(each_db, held=0) == 32
    add_worker(each_db, "b")
    submit_job(each_db, 100, judge=JUDGE)
    assert (share(each_db, held=0), share(each_db, held=0, limit=16)) == (32, 16)


MISSED = leases.REPORT_SECONDS * leases.MISSED_REPORTS


def test_workers_running_counts_those_seen_lately(each_db: Database) -> None:
    add_worker(each_db, "here")
    add_worker(each_db, "slow", age=MISSED - 5)
    add_worker(each_db, "killed", age=MISSED + 5)
    with each_db.read() as session:
        assert leases.running_workers(session) == 2
    listed = {worker.name: worker for worker in Workers(each_db).page()}
    expected = {"here": "running", "slow": "running", "killed": "lost"}
    assert {name: worker.status for name, worker in listed.items()} == expected
    assert datetime.now(UTC) - listed["killed"].since == pytest.approx(timedelta(seconds=60), abs=timedelta(seconds=30))
    add_worker(each_db, "killed")
    with each_db.write() as session:
        assert leases.running_workers(session) == 3, "it was suspended and goes on"
        leases.report_worker(session, "killed", host="", pid=0, uptime=None)
        assert leases.running_workers(session) == 2


def test_workers_remove_lost_deletes_old_rows_only(each_db: Database) -> None:
    add_worker(each_db, "lost", age=MISSED + 5)
    add_worker(each_db, "old", age=leases.KEPT_SECONDS + 5)
    with each_db.write() as session:
        leases.reconcile(session, max_leases=3)
        assert [row.name for row, _ in leases.list_workers(session)] == ["lost"]


def test_workers_times_are_by_the_clock_of_the_database(each_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    if each_db.engine.dialect.name == "sqlite":
        pytest.skip("its clock is the machine's")
    add_worker(each_db)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    with each_db.read() as session:
        assert leases.running_workers(session) == 1
