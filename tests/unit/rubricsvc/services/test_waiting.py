"""Waiting for a job: who scores it, and what an unreachable database or broker does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import OperationalError

from rubricsvc.core.judge import Judge
from rubricsvc.errors import NotFoundError, UnavailableError
from rubricsvc.services import waiting
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs
from rubricsvc.store.session import Database
from tests.rows import submit_job

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


@pytest.mark.parametrize(("limit", "notes"), [(60.0, 2), (-1.0, 1)])
def test_retry_database_retries_for_a_while(monkeypatch: pytest.MonkeyPatch, limit: float, notes: int) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(waiting, "RETRY_SECONDS", limit)
    answers = iter([False, False, True])

    def read() -> str:
        if next(answers):
            return "value"
        raise OperationalError("SELECT", {}, ConnectionError("gone"))

    messages: list[str] = []
    if limit > 0:
        assert waiting.retry_database(read, messages.append) == "value"
    else:
        with pytest.raises(UnavailableError, match="gone"):
            waiting.retry_database(read, messages.append)
    assert len(messages) == notes
