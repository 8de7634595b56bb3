"""Logs carry ids, are JSON where nobody watches, and take in what libraries say; brokers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from sqlalchemy.exc import OperationalError
from structlog.contextvars import bound_contextvars
from structlog.testing import capture_logs

from rubricsvc import telemetry
from rubricsvc.broker import make_celery
from rubricsvc.settings import Settings
from rubricsvc.store import leases
from rubricsvc.store.session import CHUNK, Database, relay
from rubricsvc.store.tables import OutboxRow


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Gives what was logged; logging is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def lines(said: Callable[[], str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said().splitlines()]


def test_log_line_is_json_with_bound_ids(said: Callable[[], str]) -> None:
    telemetry.configure("INFO")
    with bound_contextvars(job_id=3, item_id=7):
        structlog.get_logger("x").info("scored", reward=0.5)
    structlog.get_logger("x").info("later")
    scored, later = lines(said)
    assert (scored["event"], scored["job_id"], scored["item_id"], scored["reward"]) == ("scored", 3, 7, 0.5)
    assert (scored["level"], scored["logger"]) == ("info", "x")
    assert scored["timestamp"].endswith("Z")
    assert "job_id" not in later


def test_log_level_applies_to_structlog_and_logging(said: Callable[[], str]) -> None:
    telemetry.configure("warning")
    structlog.get_logger("x").info("no")
    logging.getLogger("y").info("no")
    structlog.get_logger("x").warning("yes")
    assert [line["event"] for line in lines(said)] == ["yes"]


def test_log_to_a_terminal_is_text(said: Callable[[], str]) -> None:
    telemetry.configure("INFO", human=True)
    secret = "in a local variable"
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger("x").exception("failed", job_id=3)
    words = said()
    assert "failed" in words and "[x]" not in words and words.startswith("[error]")
    assert "ValueError: broken" in words
    assert secret not in words
    with pytest.raises(json.JSONDecodeError):
        json.loads(words.splitlines()[0])


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
