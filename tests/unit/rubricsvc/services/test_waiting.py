"""Waiting for a job: who scores it, and what an unreachable database or broker does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.errors import NotFoundError, UnavailableError
from rubricsvc.services import waiting
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs, workers
from rubricsvc.store.session import Database
from tests.rows import add_worker, submit_job

JUDGE = Judge(name="test", model="m")


class Workers:
    """Counts the workers that were started and stopped."""

    started = stopped = 0

    @contextmanager
    def start(self, _judge: Judge) -> Iterator[None]:
        self.started += 1
        yield
        self.stopped += 1


def test_ensure_worker_runs_one_for_an_open_job(db: Database) -> None:
    job, workers = submit_job(db, 1, judge=JUDGE), Workers()
    with waiting.ensure_worker(db, job, workers.start, print):
        assert (workers.started, workers.stopped) == (1, 0)
    assert workers.stopped == 1
    with db.write() as session:
        jobs.cancel(session, job)
    with waiting.ensure_worker(db, job, workers.start, print):
        assert workers.started == 1
    with pytest.raises(NotFoundError), waiting.ensure_worker(db, 7, workers.start, print):
        pass


def test_ensure_worker_warns_of_an_unreachable_broker(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", "redis://127.0.0.1:1/0")
    get_settings.cache_clear()
    job, workers, notes = submit_job(db, 1, judge=JUDGE), Workers(), list[str]()
    db.on_commit = lambda: None
    with waiting.ensure_worker(db, job, workers.start, notes.append):
        pass
    get_settings.cache_clear()
    assert workers.started == 0 and "redis://127.0.0.1:1/0" in notes[0] and f"jobs wait {job}" in notes[1]


def test_follow_yields_progress_until_the_end(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    job = submit_job(db, 2, judge=JUDGE)
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    seen = []
    for progress in waiting.follow(db, job):
        seen.append((progress.pending, progress.cancelled))
        with db.write() as session:
            jobs.cancel(session, job)
    assert seen == [(2, 0), (0, 2)]


def test_follow_says_when_no_worker_runs_and_when_one_appears(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    job = submit_job(db, 2, judge=JUDGE)
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    notes: list[str] = []
    polls = waiting.follow(db, job, notes.append)
    next(polls), next(polls)
    assert len(notes) == 1 and db.url in notes[0] and f"`rubricsvc jobs wait {job}`" in notes[0]
    add_worker(db)
    next(polls), next(polls)
    assert len(notes) == 2
    with db.write() as session:
        jobs.cancel(session, job)
        workers.remove(session, "test")
    assert [progress.cancelled for progress in polls] == [2] and len(notes) == 2, "the job has ended"


def test_no_worker_names_the_command_of_the_broker(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "`rubricsvc serve`" in waiting.no_worker(db, 1)
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", "redis://127.0.0.1:1/0")
    get_settings.cache_clear()
    message = waiting.no_worker(db, 1)
    get_settings.cache_clear()
    assert "`rubricsvc worker`" in message and "RUBRICSVC_BROKER_URL=memory://" in message


@pytest.mark.parametrize(("limit", "notes"), [(60.0, 2), (0.0, 0)])
def test_follow_retries_the_database_for_a_while(
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
        assert [progress.cancelled for progress in waiting.follow(db, job, messages.append)] == [1]
    else:
        with pytest.raises(UnavailableError, match="gone"):
            list(waiting.follow(db, job, messages.append))
    assert len(messages) == notes
