"""Logs carry ids, are JSON where nobody watches, and take in what libraries say."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from rubricsvc import telemetry


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
