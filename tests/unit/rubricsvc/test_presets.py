"""Presets of `rubrics init`; logs and their ids; brokers."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy.exc import OperationalError
from structlog.contextvars import bound_contextvars
from structlog.testing import capture_logs

from rubricsvc import presets, telemetry
from rubricsvc.broker import make_celery
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.reward import reward
from rubricsvc.core.rubric import Ordinal
from rubricsvc.core.verdict import Verdict
from rubricsvc.formats import InputFile, load, stream
from rubricsvc.lint import lint
from rubricsvc.settings import Settings
from rubricsvc.store import leases
from rubricsvc.store.session import CHUNK, Database, relay
from rubricsvc.store.tables import OutboxRow
from workers import checks
from workers.authoring.planted_faults import faults_by_rule, good_examples

PROMPTS = ["Why?", "a: 'b' \"c\" # d\n- e\n", "-", "{x}", "é\u2028x", "1"]


@pytest.mark.parametrize("name", presets.NAMES)
def test_presets_load_lint_clean_and_pay_nothing_for_an_empty_completion(name: str, tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text(presets.text(name), encoding="utf-8")
    (record,) = load(file)
    rubric = record.rubric
    assert record.prompt is None and record.name == name and rubric is not None
    checks.validate(rubric)
    assert 4 <= len(rubric.criteria) <= 9
    assert any(one.check for one in rubric.criteria) and any(one.weight < 0 for one in rubric.criteria)
    assert any(isinstance(one.scale, Ordinal) for one in rubric.criteria) and lint(rubric) == []
    best = [Verdict.scored(one.key, float(one.weight > 0)) for one in rubric.criteria]
    worst = [Verdict.scored(one.key, float(one.weight < 0)) for one in rubric.criteria]
    assert (reward(rubric, best).value, reward(rubric, worst).value) == (1.0, 0.0)
    empty = checks.run(rubric, Prompt.of("Why?"), Completion(text=""))
    judged = [Verdict.scored(one.key, 0.0) for one in rubric.criteria if one.check is None]
    assert empty and reward(rubric, [*empty, *judged]).value == 0.0


def test_presets_have_examples_to_plant_faults_into() -> None:
    for name in ["advice", "code-review", "summary"]:
        (record,) = stream(InputFile("preset.yaml", stream=BytesIO(presets.text(name).encode())))
        rubric = record.rubric
        assert rubric is not None and rubric.examples is not None and len(rubric.examples) == 6
        for example in rubric.examples:
            assert example.prompt is not None and example.verdicts is not None
            for verdict in checks.run(rubric, example.prompt, Completion(text=example.text)):
                assert verdict.value is not None
                expected = example.verdicts.get(verdict.criterion)
                assert expected is None or round(verdict.value) in expected, (example.key, verdict.criterion)
        faults = Counter(base.criterion.key for base in good_examples(rubric) for _ in faults_by_rule(rubric, base))
        assert {key for key in rubric.by_key if faults[key] < 3} <= {"situation"}


def test_text_puts_the_prompt_in(tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    for prompt in PROMPTS:
        file.write_text(presets.text("plan", prompt), encoding="utf-8")
        (record,) = load(file)
        assert record.prompt is not None and record.prompt.text == prompt.removesuffix("\n")
        assert record.name.startswith("plan-")


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
    assert (scored["level"], scored["logger"]) == ("info", "x") and scored["timestamp"].endswith("Z")
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
    assert "ValueError: broken" in words and secret not in words
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

    monkeypatch.setattr(db, "write", gone)
    with capture_logs() as logs:
        assert relay(db, lambda *_: None) == 0
    assert [(log["log_level"], "gone" in log["error"]) for log in logs] == [("warning", True)]


def test_relay_sends_in_chunks(db: Database) -> None:
    with db.write() as session:
        session.add_all(OutboxRow(task=leases.SCORE, judge_id=1) for _ in range(CHUNK + 1))
    sent: list[str] = []
    assert [relay(db, lambda task, _: sent.append(task)) for _ in range(3)] == [CHUNK, 1, 0]
    assert len(sent) == CHUNK + 1


def test_settings_reject_lease_shorter_than_heartbeats() -> None:
    with pytest.raises(ValueError, match="lease_seconds"):
        Settings(lease_seconds=1)
    assert Settings(lease_seconds=1.5).heartbeat_seconds == 0.5
