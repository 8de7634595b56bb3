"""`runs list`, `show`, `stop` and `delete`, on a run that another thread trains or has trained."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rubricsvc.schemas.runs import RunHeartbeat
from rubricsvc.services.runs import Runs
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli
from tests.integration.rubricsvc.cli.test_runs import CONFIG
from tests.recorded_run import new_run, run_step
from tests.tiny_model import tiny_model


@pytest.fixture
def config(tmp_path: Path, rubric_file: Path) -> Path:
    tiny_model(tmp_path / "policy")
    path = tmp_path / "first.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def store(cli: Cli) -> Runs:
    return Runs(Database(get_settings().database_url))


def test_runs_are_on_record_from_start_to_delete(cli: Cli, config: Path, tmp_path: Path) -> None:
    started = cli("runs", "start", config, "--json")
    assert (started.code, started.json["id"]) == (0, 1), started.err
    shown = cli("runs", "show", 1, "--json").json
    assert (shown["name"], shown["status"], shown["steps"], shown["steps_total"]) == ("first", "finished", 3, 3)
    assert (shown["rollouts"], shown["unscored"]) == (12, 0)
    assert (shown["judge"], shown["config"]["scored_by"]) == ("quick", "celery")
    assert cli("runs", "show", "runs/first", "--json").json | {"seen_seconds": shown["seen_seconds"]} == shown
    assert cli("runs", "show", "--follow").code == 2
    (listed,) = cli("runs", "list", "--json").lines
    assert (listed["id"], listed["status"], listed["folder"]) == (1, "finished", str(tmp_path / "runs" / "first"))

    assert cli("runs", "stop", 1).code == 2
    watched = cli("runs", "show", 1, "--follow", "--json")
    assert (watched.code, watched.json["status"]) == (0, "finished")
    config.write_text(CONFIG.replace("steps = 3", "steps = 4"))
    resumed = cli("runs", "start", config, "--resume", "--json")
    assert (resumed.code, resumed.json["id"], resumed.json["steps"]) == (0, 1, 4), resumed.err
    assert [cli("runs", "show", 1, "--json").json[name] for name in ("steps", "rollouts")] == [4, 16]

    refused = cli("runs", "delete", 1)
    assert refused.code == 2 and "4 steps and 16 rollouts" in refused.err and "--yes" in refused.err
    assert cli("runs", "delete", 1, "--yes").code == 0
    assert cli("runs", "show", 1).code == 3
    assert cli("runs", "list", "--json").lines == []
    assert cli("runs", "show", "runs/first", "--follow").code == 3


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("stopped", 0), ("failed", 1)])
def test_runs_show_follows_until_the_run_ends(cli: Cli, store: Runs, state: str, code: int) -> None:
    store.create(new_run(steps_total=2))
    store.record(1, run_step(1, reward_std=0.1))

    def end() -> None:
        store.heartbeat(1, RunHeartbeat(state="paused", reason="the judge is down"))
        store.heartbeat(1, RunHeartbeat(state="running"))
        store.record(1, run_step(2, reward_std=0.1))
        store.heartbeat(1, RunHeartbeat.model_validate({"state": state, "reason": "why"}))

    timer = threading.Timer(0.8, end)
    timer.start()
    ran = cli("runs", "show", 1, "--follow", "--json")
    timer.join()
    assert (ran.code, ran.json["status"], ran.json["steps"]) == (code, state, 2)
    assert ("--resume" in ran.err) == (state != "finished")
