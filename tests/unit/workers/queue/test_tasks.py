"""What a worker's process keeps: who is worked for, and the database."""

from __future__ import annotations

from rubricsvc.settings import Settings
from rubricsvc.store.session import Database
from workers.queue import app as tasks


def test_single_flight_allows_one_drain_and_remembers_requests() -> None:
    doors = tasks.SingleFlight()
    assert doors.enter(1)
    assert doors.enter(2)
    assert doors.leave(2) is False
    assert not doors.enter(1)
    assert not doors.enter(1)
    assert doors.leave(1) is True
    assert doors.enter(1)
    assert doors.leave(1) is False


def test_database_is_opened_once_and_closed_at_exit(db: Database) -> None:
    settings = Settings(database_url=db.url, broker_url="memory://")
    first = tasks.database(settings)
    assert tasks.database(settings) is first
    assert first.on_commit is not None
    with first.read() as session:
        session.connection()
    assert first.engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    tasks.close()
    assert first.engine.pool.checkedin() == 0  # type: ignore[attr-defined]
    assert tasks.database(settings) is not first
    tasks.close()
