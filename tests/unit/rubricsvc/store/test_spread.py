"""How many workers receive a message about a job, and which part of it each may claim."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from rubricsvc.core.judge import Judge
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from rubricsvc.store.tables import OutboxRow
from tests.rows import add_worker, submit_job

JUDGE = Judge(name="j", model="m")


def messages(db: Database) -> int:
    with db.read() as session:
        return session.scalar(select(func.count(OutboxRow.id))) or 0


@pytest.mark.parametrize(("running", "items", "sent"), [(0, 5, 1), (3, 40, 3), (3, 2, 2), (1, 70, 2), (40, 50, 40)])
def test_submit_wakes_running_workers(each_db: Database, running: int, items: int, sent: int) -> None:
    for number in range(running):
        add_worker(each_db, f"worker {number}")
    add_worker(each_db, "killed", age=leases.REPORT_SECONDS * leases.MISSED_REPORTS + 5)
    submit_job(each_db, items, judge=JUDGE)
    assert messages(each_db) == sent


def test_release_wakes_workers_for_the_released_items(each_db: Database) -> None:
    for number in range(3):
        add_worker(each_db, f"worker {number}")
    submit_job(each_db, 5, judge=JUDGE)
    leases.relay(each_db, lambda *_: None)
    with each_db.write() as session:
        leases.release(session, leases.claim(session, 1, limit=2, worker="w", seconds=60))
    assert messages(each_db) == 2


def share(db: Database, held: int, limit: int = 32) -> int:
    with db.read() as session:
        return leases.fair_share(session, 1, limit=limit, held=held)


def claim(db: Database, worker: str, limit: int) -> int:
    with db.write() as session:
        return len(leases.claim(session, 1, limit=limit, worker=worker, seconds=60))


def test_fair_share_is_equal_for_workers_that_come_one_after_another(each_db: Database) -> None:
    for name in "abc":
        add_worker(each_db, name)
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


@pytest.mark.parametrize("running", [0, 1])
def test_fair_share_of_the_only_worker_is_the_limit(each_db: Database, running: int) -> None:
    if running:
        add_worker(each_db)
    submit_job(each_db, 3, judge=JUDGE)
    assert share(each_db, held=0) == 32


def test_fair_share_is_at_most_the_limit(each_db: Database) -> None:
    for name in "ab":
        add_worker(each_db, name)
    submit_job(each_db, 100, judge=JUDGE)
    assert (share(each_db, held=0), share(each_db, held=0, limit=16)) == (32, 16)
