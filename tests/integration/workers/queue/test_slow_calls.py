"""Slow and stuck calls over a real socket: they run side by side, block nobody, and end with their job."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store import jobs, judges, leases
from rubricsvc.store.session import Database
from tests.rows import progress_of, submit_job
from tests.scripted_server import ScriptedReply, ScriptedServer, labels, scripted_server
from tests.services import wait_for
from workers.queue.drain import Drainer

ONE = Rubric(criteria=(Criterion(key="met", text="Is good."),))
YES = labels(Yes=0.9, No=0.1)


@contextmanager
def draining(db: Database, **changes: Any) -> Iterator[threading.Thread]:
    """Work on judge 1 in a thread, ended by a stop if by nothing else."""
    stopping = threading.Event()
    settings = Settings.model_validate({"database_url": db.url, **changes})
    thread = threading.Thread(target=lambda: Drainer(db, settings, stopping).run(1))
    thread.start()
    try:
        yield thread
    finally:
        stopping.set()
        thread.join(30)


def judge_at(server: ScriptedServer, **endpoint: Any) -> Judge:
    return Judge(name="http", model="scripted", endpoint=Endpoint(base_url=server.url, **{"max_retries": 0} | endpoint))


def test_drain_continues_beside_a_stuck_call(db: Database) -> None:
    def script(_: int, body: dict[str, Any]) -> ScriptedReply:
        return replace(YES, delay_s=600.0) if "answer 3" in body["messages"][-1]["content"] else YES

    with scripted_server(script) as server:
        job = submit_job(db, 9, judge=judge_at(server, concurrency=2), rubric=ONE)
        with draining(db, claim_size=2) as thread:
            wait_for(lambda: progress_of(db, job).done == 8)
            assert thread.is_alive()
            with db.write() as session:
                jobs.cancel(session, job)


def test_limits_hold_over_all_workers(db: Database) -> None:
    """Also while a worker joins: it waits until calls of the others have ended, and they begin fewer."""

    def drains() -> int:
        with db.read() as session:
            return leases.drains(session, 1)

    with scripted_server(replace(YES, delay_s=1.0)) as server:
        submit_job(db, 3000, judge=judge_at(server, concurrency=12, requests_per_minute=1_000_000), rubric=ONE)
        changes = {"heartbeat_seconds": 0.05, "claim_size": 32}
        with draining(db, **changes):
            wait_for(lambda: server.concurrent == 12)
            with draining(db, **changes), draining(db, **changes):
                wait_for(lambda: drains() == 3)
                for _ in range(3):
                    server.max_concurrent = 0
                    time.sleep(0.5)
                    assert server.max_concurrent <= 12
                wait_for(lambda: server.concurrent == 12)
            wait_for(lambda: drains() == 1 and server.concurrent == 12)
            assert server.max_concurrent == 12


def test_calls_of_ended_drains_count_for_a_minute(each_db: Database) -> None:
    """A drain gets what the others have not used lately; what is more than all use is never given."""
    with each_db.write() as session:
        assert leases.share(session, 1, "first", used=0.0, least=0.1, begin=2) == 0.5
        assert leases.share(session, 1, "second", used=0.0, least=0.1) == 0.5
        assert leases.share(session, 1, "third", used=0.0, least=0.1) == 0.0
        assert leases.share(session, 1, "first", used=0.4, least=0.1) == pytest.approx(1 / 3)
        assert leases.share(session, 1, "third", used=0.0, least=0.1) == pytest.approx(0.1)
        assert leases.share(session, 2, "third", used=0.0, least=1.0) == 1.0
        leases.leave(session, 1, "first", 0.3)
        leases.leave(session, 1, "second", 0.0)
        assert leases.share(session, 1, "third", used=0.0, least=0.1) == pytest.approx(0.7)
        rated = Judge(name="rated", model="m", endpoint=Endpoint(base_url="http://x", requests_per_minute=9))
        other = judges.add(session, rated).id
        leases.share(session, other, "third", used=0.2, least=0.1)
        leases.reconcile(session, max_leases=1, dead=["third"])
        assert leases.share(session, other, "fourth", used=0.0, least=0.1) == 0.0, "the third may have used all"
        leases.leave(session, other, "fourth", 0.0)
        assert not leases.holders(session) and leases.drains(session, 1) == 0


@pytest.mark.parametrize("retrying", [False, True])
def test_cancel_ends_calls_at_the_server(db: Database, retrying: bool) -> None:
    """Those under way are hung up on, and no other is begun: neither those that wait for a slot nor a retry."""
    slow = replace(YES, delay_s=600.0)
    with scripted_server(
        [ScriptedReply(status=429, body=b"{}", headers={"Retry-After": "60"}), slow] if retrying else slow
    ) as server:
        job = submit_job(db, 40, judge=judge_at(server, concurrency=8, max_retries=1), rubric=ONE)
        with draining(db) as thread:
            wait_for(lambda: server.count >= (1 if retrying else 8))
            with db.write() as session:
                jobs.cancel(session, job)
            thread.join(20)  # the calls take a minute or more: only a cancelled drain ends before
            assert not thread.is_alive()
        wait_for(lambda: server.concurrent == 0)
        assert server.count <= 8
    assert progress_of(db, job).cancelled == 40
