"""Runs of a tiny policy that are recorded, also while the database is away."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import func, select

from rubricsvc.errors import TooLargeError, UnavailableError
from rubricsvc.schemas.runs import RunStep, StoredRollout, StoredRun
from rubricsvc.services.runs import Runs
from rubricsvc.store import runs
from rubricsvc.store.session import Database
from rubricsvc.store.tables import RolloutRow, RunMetricsRow
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_config, tiny_policy
from tests.recorded_run import run_step
from trainer.loop import train
from trainer.recording import REFUSED, UNDELIVERED, History, Metrics, RunRecorder
from trainer.recording import read as read_metrics
from trainer.rewards import CallableRewards, RewardSource, ScoredRollout

REWARDS = CallableRewards(share_of_a)


def trained(
    db: Database, out: Path, *, rewards: Any = REWARDS, stop: Event | None = None, resume: bool = False, **options: Any
) -> History:
    """Train with a recorder that never beats, unless the test is about it."""
    config = tiny_config(
        out=out, **{key: options.pop(key) for key in ("steps", "checkpoint_every", "max_unscored") if key in options}
    )
    stop = stop or Event()
    with RunRecorder(Runs(db), "tiny-1", out, stop, heartbeat_seconds=options.pop("beat", 60.0)) as recorder:
        return train(tiny_policy(), TASKS, rewards, config, stop=stop, resume=resume, recorder=recorder, **options)


def stored(db: Database) -> StoredRun:
    return Runs(db).get(1)


def all_rollouts(db: Database) -> list[StoredRollout]:
    return list(Runs(db).rollouts(1, limit=200))


def check_complete(db: Database, out: Path, steps: int) -> None:
    """The record, SQL and the metrics file agree: each step once, with all its rollouts."""
    run, lines = stored(db), read_metrics(out)
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    assert (run.steps, run.rollouts) == (steps, 8 * steps)
    with db.read() as session:
        assert session.scalar(select(func.count()).select_from(RolloutRow)) == 8 * steps
        assert session.scalar(select(func.count()).select_from(RunMetricsRow)) == steps
        assert [row.metrics for row in runs.steps(session, 1, limit=1000)] == lines
    assert [(one.step, one.place) for one in all_rollouts(db)] == [
        (step, place) for step in range(1, steps + 1) for place in range(8)
    ]


def test_train_records_steps_with_rollouts(db: Database, tmp_path: Path) -> None:
    history = trained(db, tmp_path / "run", steps=3)
    run = stored(db)
    assert (run.name, run.status, run.steps_total, run.unscored) == ("run", "finished", 3, 0)
    assert run.config == json.loads((tmp_path / "run" / "config.json").read_text())
    check_complete(db, tmp_path / "run", 3)
    first = [one for one in all_rollouts(db) if one.step == 1]
    rewards = [one.reward or 0.0 for one in first]
    assert sum(rewards) / 8 == pytest.approx(history.steps[0]["reward"])
    assert sum(one.tokens for one in first) == history.steps[0]["num_tokens"]
    for group in (first[:4], first[4:]):
        assert sum(one.advantage or 0.0 for one in group) == pytest.approx(0.0, abs=1e-4)
        assert len({one.prompt_id for one in group}) == 1
    assert all(one.logprob_sum is not None and one.logprob_sum < 0.0 for one in first)
    truncated = sum(one.truncated for one in first) / 8
    assert truncated == history.steps[0]["completions/clipped_ratio"]


def test_train_records_failure_and_interrupt(db: Database, tmp_path: Path) -> None:
    class Down(RewardSource):
        error: BaseException = UnavailableError("the judge is down")

        def score(self, *_: object) -> list[ScoredRollout]:
            raise self.error

    with pytest.raises(UnavailableError):
        trained(db, tmp_path / "run", rewards=Down())
    assert (stored(db).status, stored(db).reason) == ("failed", "UnavailableError: the judge is down")
    Down.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        trained(db, tmp_path / "run", rewards=Down(), resume=True)
    assert (stored(db).status, stored(db).steps) == ("stopped", 0)


def test_train_stops_when_asked_in_the_database_and_resumes(db: Database, tmp_path: Path) -> None:
    def ask(step: Metrics) -> None:
        if step["step"] == 2:
            Runs(db).stop(1)

    history = trained(db, tmp_path / "run", on_step=ask)
    assert (history.stopped, stored(db).status, stored(db).steps) == (True, "stopped", 3)
    assert not trained(db, tmp_path / "run", resume=True).stopped
    assert (stored(db).id, stored(db).status, stored(db).stop_requested) == (1, "finished", False)
    check_complete(db, tmp_path / "run", 6)


def test_train_replaces_the_steps_after_the_checkpoint(db: Database, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def die(step: Metrics) -> None:
        if step["step"] == 5:
            raise Killed

    out = tmp_path / "run"
    with pytest.raises(Killed):
        trained(db, out, on_step=die, checkpoint_every=2)
    for number in (5, 6):  # as after kill -9: the last checkpoint is that of step 4, and step 5 is on record
        for path in (out / "checkpoints").glob(f"step-{number:06d}"):
            path.rename(tmp_path / path.name)
    assert stored(db).steps == 5
    before = [one.reward for one in all_rollouts(db)]
    trained(db, out, resume=True, checkpoint_every=2)
    check_complete(db, out, 6)
    assert [one.reward for one in all_rollouts(db)][: len(before)] == before


class Outage:
    """Moves the folder of a SQLite database away, and back."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db, self.folder, self.hidden = db, folder, folder.with_name("hidden")

    def begin(self) -> None:
        self.db.close()
        self.folder.rename(self.hidden)

    def end(self) -> None:
        self.hidden.rename(self.folder)


@pytest.fixture
def outage(tmp_path: Path) -> Outage:
    from tests.databases import sqlite_at

    folder = tmp_path / "database"
    folder.mkdir()
    return Outage(Database(sqlite_at(folder / "runs.db")), folder)


def test_recorder_keeps_steps_while_the_database_is_away(outage: Outage, tmp_path: Path, logged: list[str]) -> None:
    def on_step(step: Metrics) -> None:
        if step["step"] == 1:
            outage.begin()
        if step["step"] == 4:
            assert (out / UNDELIVERED).read_text().count('"step":3,') >= 1
            outage.end()

    out = tmp_path / "run"
    trained(outage.db, out, on_step=on_step)
    assert not (out / UNDELIVERED).exists()
    assert stored(outage.db).status == "finished"
    check_complete(outage.db, out, 6)
    assert sum(UNDELIVERED in line for line in logged) == 1
    outage.db.close()


def test_resumed_run_delivers_what_its_last_process_kept(outage: Outage, tmp_path: Path) -> None:
    out = tmp_path / "run"

    def on_step(step: Metrics) -> None:
        if step["step"] == 2:
            outage.begin()

    trained(outage.db, out, on_step=on_step, steps=4)
    assert (out / UNDELIVERED).read_text().count("\n") == 3, "two steps and the state"
    outage.end()
    assert stored(outage.db).steps == 2
    trained(outage.db, out, resume=True)
    check_complete(outage.db, out, 6)
    assert not (out / UNDELIVERED).exists()
    outage.db.close()


class RefusesStepTwo(Runs):
    def record(self, run_id: int, step: RunStep) -> StoredRun:
        if step.step == 2:
            raise TooLargeError("too many values")
        return super().record(run_id, step)


@pytest.mark.parametrize("queued", [True, False])
def test_recorder_sets_a_refused_step_aside(db: Database, tmp_path: Path, logged: list[str], queued: bool) -> None:
    if queued:
        lines = "".join(run_step(number).model_dump_json() + "\n" for number in (1, 2, 3))
        (tmp_path / UNDELIVERED).write_text(lines)
    earlier = [dict(run_step(number).metrics) for number in ((1, 2, 3) if queued else ())]
    with RunRecorder(RefusesStepTwo(db), "key", tmp_path, Event()) as recorder:
        recorder.begin({"steps": 5}, None, earlier)
        for number in (4, 5) if queued else (1, 2, 3, 4, 5):
            step = run_step(number)
            recorder.send(step)
        recorder.set_state("finished")
    assert not (tmp_path / UNDELIVERED).exists()
    kept = [RunStep.model_validate_json(line) for line in (tmp_path / REFUSED).read_text().splitlines()]
    assert kept[-1] == run_step(2) and {one.step for one in kept} == {2}
    assert {one.step for one in all_rollouts(db)} == {1, 3, 4, 5}
    assert (stored(db).status, stored(db).steps) == ("finished", 4)
    assert any(REFUSED in line and "too many values" in line for line in logged)


@pytest.mark.parametrize(
    "damaged",
    [b'{"step": 9, "metr', b'{"step":1,"metr\n', b"\xff\xfe\n", b"\0\0\n", b"[]\n", b'{"step":1,"later":1}\n'],
)
def test_recorder_sets_damaged_lines_aside(db: Database, tmp_path: Path, logged: list[str], damaged: bytes) -> None:
    whole = run_step(1).model_dump_json().encode() + b"\n"
    (tmp_path / UNDELIVERED).write_bytes(whole + damaged)
    with RunRecorder(Runs(db), "key", tmp_path, Event()) as recorder:
        recorder.begin({"steps": 5}, None, [dict(run_step(1).metrics)])
    (copy,) = tmp_path.glob("damaged-undelivered-*.jsonl")
    assert copy.read_bytes() == whole + damaged and any(copy.name in line for line in logged)
    assert not (tmp_path / UNDELIVERED).exists() and len(all_rollouts(db)) == 4
