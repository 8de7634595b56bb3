"""The drainer, with engines that answer at once, slowly or wrongly, on real databases."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from rubricsvc.core.judge import Endpoint, Judge
from rubricsvc.core.verdict import Reason
from rubricsvc.services.jobs import Jobs
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges
from rubricsvc.store import leases as store
from rubricsvc.store.session import Database
from tests.instant_engine import InstantEngine, agreeable
from tests.rows import invalidate, progress_of, status_of, submit_job
from tests.services import wait_for
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Question, Reply
from workers.queue.drain import Drainer
from workers.scoring import completions as scoring

JUDGE = Judge(name="test", engine="test", model="none", endpoint=Endpoint(concurrency=4))


class Slow(InstantEngine):
    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        await asyncio.sleep(30)
        return await super().ask(request)


@pytest.fixture
def use() -> Iterator[object]:
    def put(engine: InstantEngine) -> None:
        ENGINES["test"] = lambda _judge: engine

    yield put
    ENGINES.pop("test", None)


def settings(db: Database, **changes: object) -> Settings:
    return Settings.model_validate({"database_url": db.url, "claim_size": 4, "heartbeat_seconds": 0.05, **changes})


def test_drain_scores_all_items(each_db: Database, use: object) -> None:
    use(InstantEngine())
    job = submit_job(each_db, 30, judge=JUDGE)
    assert Drainer(each_db, settings(each_db)).run(1) is True
    with each_db.read() as session:
        assert jobs.get(session, job).status == "completed"
        progress = jobs.progress(session, job)
        assert (progress.done, progress.verdicts, progress.failed_verdicts) == (30, 90, 0)
        assert all(row.reward == pytest.approx(0.9) for row in jobs.items(session, job))


def test_drain_fails_the_items_of_a_judge_that_is_not_valid_any_more(each_db: Database, use: object) -> None:
    use(InstantEngine())
    submitted = [submit_job(each_db, count, judge=JUDGE, key=f"{count}") for count in (5, 2)]
    invalidate(each_db, JUDGE.name, base_url="http://user:secret@host/v1")
    assert Drainer(each_db, settings(each_db)).run(1) is True
    with each_db.read() as session:
        for job in submitted:
            assert jobs.get(session, job).status == "completed_with_failures"
            assert {row.state for row in jobs.items(session, job)} == {"failed"}
        (reason,) = jobs.unrewarded(session, job)
    (hint,) = Jobs(each_db).get(job, summary=True).hints
    for text in (reason, hint):
        assert "base_url" in text and "judges add -f FILE" in text and "secret" not in text
    with each_db.write() as session:
        judges.add(session, JUDGE)
        assert jobs.retry(session, job) == 2
    Drainer(each_db, settings(each_db)).run(1)
    assert status_of(each_db, job) == "completed"


def test_drain_asks_only_failed_verdicts_on_retry(each_db: Database, use: object) -> None:
    def second_fails(question: Question) -> Reply | Failure:
        return Failure(Reason.TIMEOUT, "slow") if "number 2" in question.text else agreeable(question)

    use(InstantEngine(second_fails))
    job = submit_job(each_db, 5, judge=JUDGE)
    Drainer(each_db, settings(each_db)).run(1)
    with each_db.read() as session:
        assert jobs.get(session, job).status == "completed_with_failures"
        assert {row.reward for row in jobs.items(session, job)} == {None}
        assert {row.reason for row in completions.verdict_page(session, outcome="failed")} == {"timeout"}
    with each_db.write() as session:
        assert jobs.retry(session, job) == 5
    well = InstantEngine(remember=100)
    use(well)
    Drainer(each_db, settings(each_db)).run(1)
    asked = [question.text for request in well.requests for question in request.questions]
    assert len(asked) == 5 and all("number 2" in tail for tail in asked)
    assert status_of(each_db, job) == "completed"


def in_background(db: Database, stopping: threading.Event, **changes: object) -> threading.Thread:
    def drain() -> None:
        with contextlib.suppress(OperationalError):  # of the test where the database is away
            Drainer(db, settings(db, **changes), stopping).run(1)

    thread = threading.Thread(target=drain)
    thread.start()
    return thread


def test_drain_stops_calls_of_cancelled_job(db: Database, use: object) -> None:
    use(Slow())
    job = submit_job(db, 3, judge=JUDGE)
    thread = in_background(db, threading.Event())
    wait_for(lambda: progress_of(db, job).leased == 3)
    with db.write() as session:
        jobs.cancel(session, job)
    thread.join(20)  # the calls take 30 s: only a cancelled drain ends before
    assert not thread.is_alive()
    assert status_of(db, job) == "cancelled"


def test_drain_renews_leases_of_slow_calls_and_releases_them_when_stopped(db: Database, use: object) -> None:
    use(Slow())
    job = submit_job(db, 1, judge=JUDGE)
    stopping = threading.Event()
    with patch("workers.queue.drain.GRACE_SECONDS", 0.1):
        thread = in_background(db, stopping, lease_seconds=1.5)
        wait_for(lambda: progress_of(db, job).leased == 1)
        for _ in range(18):  # 3.6 s, more than twice the lease
            time.sleep(0.2)
            with db.write() as session:
                store.reconcile(session, max_leases=100)
        with db.read() as session:
            assert jobs.items(session, job)[0].fence == 1
        stopping.set()
        thread.join(20)
    assert progress_of(db, job).pending == 1


def test_drain_waits_for_unreachable_database(db: Database, use: object) -> None:
    use(InstantEngine())
    job = submit_job(db, 8, judge=JUDGE)
    real, failures = store.record, iter([OperationalError("write", {}, Exception("disk is full"))] * 2)

    def flaky(*args: object) -> list[int]:
        if (error := next(failures, None)) is not None:
            raise error
        return real(*args)

    with patch.object(store, "record", flaky), capture_logs() as logs:
        assert Drainer(db, settings(db)).run(1) is True
    assert progress_of(db, job).done == 8 and db.outage is None
    assert ["sqlalche" in str(log) for log in logs if log["log_level"] == "warning"] == [False]


def test_drain_isolates_an_error_in_one_item(db: Database, use: object) -> None:
    use(InstantEngine())
    job = submit_job(db, 6, judge=JUDGE)
    real = scoring.score

    async def breaks(*args: Any, **options: Any) -> Any:
        if args[4].text == "answer 2":
            raise ValueError("unforeseen")
        return await real(*args, **options)

    with patch("workers.queue.drain.score", breaks):
        assert Drainer(db, settings(db)).run(1) is True
    with db.read() as session:
        progress = jobs.progress(session, job)
        assert (progress.done, progress.failed, progress.failed_verdicts) == (5, 1, 3)
        assert {row.reason for row in completions.verdict_page(session, outcome="failed")} == {"engine_error"}


def test_drain_isolates_an_unstorable_result(db: Database, use: object) -> None:
    use(InstantEngine())
    job = submit_job(db, 6, judge=JUDGE)
    real = store.record

    def refuses(session: Any, outcomes: Any) -> list[int]:
        if any(outcome.lease.item_id == 3 for outcome in outcomes):
            raise ValueError("cannot be kept")
        return real(session, outcomes)

    with patch.object(store, "record", refuses):
        assert Drainer(db, settings(db)).run(1) is True
    with db.read() as session:
        assert jobs.progress(session, job).done == 5
        [bad] = [row for row in jobs.items(session, job) if row.state == "failed"]
        assert (bad.id, bad.reward) == (3, None)
        assert bad.null_reason == "the result cannot be recorded: ValueError: cannot be kept"
        assert jobs.get(session, job).status == "completed_with_failures"
    with db.write() as session:
        assert jobs.retry(session, job) == 1
    assert Drainer(db, settings(db)).run(1) is True and status_of(db, job) == "completed"
