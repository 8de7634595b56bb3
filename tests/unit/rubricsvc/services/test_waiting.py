"""Waiting for a job: who scores it, and what an unreachable database or broker does."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.errors import NotFoundError, UnavailableError
from rubricsvc.schemas import StoredJob
from rubricsvc.services import jobs as waiting
from rubricsvc.services.jobs import Jobs
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs
from rubricsvc.store.session import Database
from tests.rows import submit_job

JUDGE = Judge(name="test", model="m")


def test_judge_here_is_that_of_an_open_job_on_a_broker_in_this_process(db: Database) -> None:
    job, service = submit_job(db, 1, judge=JUDGE), Jobs(db)
    assert service.judge_here(job) == JUDGE
    db.on_commit = lambda: None
    assert service.judge_here(job) is None, "another process may score it"
    db.on_commit = None
    service.cancel(job)
    assert service.judge_here(job) is None
    with pytest.raises(NotFoundError):
        service.judge_here(7)


def test_wait_reports_progress_until_the_end(db: Database) -> None:
    job_id, seen = submit_job(db, 2, judge=JUDGE), []

    def on_progress(job: StoredJob) -> None:
        assert job.progress is not None
        seen.append((job.progress.pending, job.progress.cancelled))
        with db.write() as session:
            jobs.cancel(session, job_id)

    assert Jobs(db).wait(job_id, None, on_progress).status == "cancelled"
    assert seen == [(2, 0), (0, 2)]


def test_wait_ends_after_its_timeout(db: Database) -> None:
    with pytest.raises(TimeoutError, match="No worker is running"):
        Jobs(db).wait(submit_job(db, 1, judge=JUDGE), 0.05)


@pytest.mark.parametrize(("limit", "notes"), [(60.0, 2), (0.0, 0)])
def test_wait_retries_the_database_for_a_while(
    db: Database, monkeypatch: pytest.MonkeyPatch, limit: float, notes: int
) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(get_settings(), "outage_seconds", limit)
    job, read, answers = submit_job(db, 1, judge=JUDGE), db.read, iter([False, False, True])
    with db.write() as session:
        jobs.cancel(session, job)

    def read_later() -> AbstractContextManager[Session]:
        if next(answers):
            return read()
        raise OperationalError("SELECT", {}, ConnectionError("gone"))

    monkeypatch.setattr(db, "read", read_later)
    messages: list[str] = []
    if limit > 0:
        assert Jobs(db).wait(job, None, None, messages.append).status == "cancelled"
    else:
        with pytest.raises(UnavailableError, match="gone"):
            Jobs(db).wait(job, None, None, messages.append)
    assert len(messages) == notes
