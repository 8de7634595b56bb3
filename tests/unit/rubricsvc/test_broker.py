"""Celery as it is set up here."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from rubricsvc.broker import make_celery
from rubricsvc.settings import Settings
from rubricsvc.store import leases
from rubricsvc.store.session import CHUNK, Database, relay
from rubricsvc.store.tables import OutboxRow


def test_memory_transport_bounds_its_wait() -> None:
    """An hour's silence ends the listening, not the test run."""
    with make_celery(Settings(broker_url="memory://")).connection() as connection:
        connection.default_channel.queue_declare("nothing-comes")
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=3600.0)


def test_relay_logs_an_unreachable_database(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is committed: an error here would tell its writer that it is not."""

    def gone(*_: object) -> int:
        raise OperationalError("SELECT", {}, ConnectionError("gone"))

    monkeypatch.setattr(db, "read", gone)
    with capture_logs() as logs:
        assert relay(db, lambda *_: None) == 0
    assert [(log["log_level"], "gone" in log["error"]) for log in logs] == [("warning", True)]


def test_relay_sends_in_chunks(db: Database) -> None:
    with db.write() as session:
        session.add_all(OutboxRow(task=leases.SCORE, args=[1]) for _ in range(CHUNK + 1))
    sent: list[str] = []
    assert [relay(db, lambda task, _: sent.append(task)) for _ in range(3)] == [CHUNK, 1, 0]
    assert len(sent) == CHUNK + 1


def test_settings_reject_lease_shorter_than_heartbeats() -> None:
    with pytest.raises(ValueError, match="lease_seconds"):
        Settings(lease_seconds=1)
    assert Settings(lease_seconds=1.5).heartbeat_seconds == 0.5
