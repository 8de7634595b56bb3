"""`runs start`, `show`, `list`, `stop` and `delete`: a tiny model is trained, and the judge answers at once."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from rubricsvc.schemas.runs import RunHeartbeat
from rubricsvc.services.runs import Runs
from rubricsvc.settings import get_settings
from rubricsvc.store import judges
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge
from tests.recorded_run import new_run, run_step
from tests.rows import replace_judge
from tests.tiny_model import tiny_model
from trainer import checkpoint
from trainer.config import load_config
from trainer.run import prepare

CONFIG = """
steps = 3
checkpoint_every = 2
[policy]
model = "policy"
dtype = "float32"
[data]
path = "rubrics.yaml"
[judge]
name = "quick"
engine = "instant"
model = "m"
[sampling]
prompts_per_step = 2
group_size = 2
max_new_tokens = 4
"""


@pytest.fixture
def config(tmp_path: Path, rubric_file: Path) -> Path:
    tiny_model(tmp_path / "policy")
    path = tmp_path / "first.toml"
    path.write_text(CONFIG)
    return path


def test_runs_are_on_record_from_start_to_delete(cli: Cli, config: Path, tmp_path: Path) -> None:
    ran = cli("runs", "start", config, "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["id"], ran.json["steps"], ran.json["config"]["scored_by"]) == (1, 3, "celery")
    assert "judge quick" in ran.err and "Celery worker in this process" in ran.err
    assert [job["name"] for job in cli("jobs", "list", "--json").lines] == [f"first step {n}" for n in (1, 2, 3)]
    assert [judge["name"] for judge in cli("judges", "list", "--json").lines] == ["quick"]
    assert sorted(one["name"] for one in cli("rubrics", "list", "--json").lines) == ["first", "second"]
    assert sorted(one["external_id"] for one in cli("prompts", "list", "--json").lines) == ["one", "two"]
    assert ran.err.count("judges calibrate") == 1 and ran.err.count("judges repeatability quick") == 1
    run = tmp_path / "runs" / "first"
    shown = cli("runs", "show", 1, "--json").json
    assert (shown["name"], shown["status"], shown["steps"], shown["steps_total"]) == ("first", "finished", 3, 3)
    assert (shown["rollouts"], shown["unscored"], shown["metrics"]["std_floor"]) == (12, 0, 0.0)
    assert (shown["judge"], shown["config"]["scored_by"]) == ("quick", "celery")
    assert cli("runs", "show", "runs/first", "--json").json | {"seen_seconds": shown["seen_seconds"]} == shown
    (listed,) = cli("runs", "list", "--json").lines
    assert (listed["id"], listed["status"], listed["folder"]) == (1, "finished", str(run))
    assert cli("runs", "show", "first", "--json").json["id"] == 1 and cli("runs", "show", "other").code == 3
    steps = cli("runs", "show", run, "--last", 2, "--json").lines
    assert [step["step"] for step in steps] == [2, 3]
    assert "REWARD_STD" in cli("runs", "show", run, "--last", 2).out
    assert cli("runs", "show", "--follow").code == cli("runs", "stop", 1).code == 2
    watched = cli("runs", "show", 1, "--follow", "--json")
    assert (watched.code, watched.json["status"]) == (0, "finished")

    again = cli("runs", "start", config)
    assert again.code == 2 and "--resume" in again.err and "train" not in again.err.splitlines()[0].split()
    finished = cli("runs", "start", config, "--resume", "--json")
    assert (finished.code, finished.json["steps"]) == (0, 3) and "resume training" not in finished.err
    config.write_text("seed = 1\n" + CONFIG)
    changed = cli("runs", "start", config, "--resume")
    assert changed.code == 2 and "seed = 0 (now 1)" in changed.err, changed.err
    config.write_text(CONFIG.replace("steps = 3", "steps = 4"))
    resumed = cli("runs", "start", config, "--resume", "--json")
    assert (resumed.code, resumed.json["id"], resumed.json["steps"]) == (0, 1, 4)
    assert [cli("runs", "show", 1, "--json").json[name] for name in ("steps", "rollouts")] == [4, 16]

    refused = cli("delete", "runs", 1)
    assert refused.code == 2 and "rollouts 16" in refused.out and "--yes" in refused.err
    assert cli("delete", "runs", 1, "--yes", "--json").json["deleted"]["rollouts"] == 16
    assert cli("runs", "show", 1).code == cli("runs", "show", "runs/first", "--follow").code == 3
    assert cli("runs", "list", "--json").lines == []


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("stopped", 0), ("failed", 1)])
def test_runs_show_follows_until_the_run_ends(cli: Cli, state: str, code: int) -> None:
    store = Runs(Database(get_settings().database_url))
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


def test_three_lines_of_python_start_what_the_command_starts(cli: Cli, config: Path) -> None:
    run = prepare(config)
    trained = run.train()
    assert run.report().steps[-1]["step"] == 3
    assert trained.record is not None and trained.record.status == "finished"
    shown = cli("runs", "show", trained.record.id, "--json").json
    assert (shown["steps"], shown["config"]["scored_by"]) == (3, "celery")


def test_runs_start_refuses_a_folder_in_which_another_process_trains(cli: Cli, config: Path) -> None:
    with checkpoint.locked(load_config(config).out):
        ran = cli("runs", "start", config)
    assert ran.code == 2 and "another process" in ran.err
    assert cli("runs", "start", config).code == 0


def test_runs_start_refuses_to_resume_with_a_replaced_judge(cli: Cli, config: Path) -> None:
    inline = '[judge]\nname = "quick"\nengine = "instant"\nmodel = "m"\n'
    config.write_text('judge = "quick"\n' + CONFIG.replace(inline, ""))
    add_judge(cli)
    assert cli("runs", "start", config).code == 0
    db = Database(get_settings().database_url)
    with db.read() as session:
        judge = judges.get(session, "quick").value
    replace_judge(db, judge)
    db.close()
    config.write_text(config.read_text().replace("steps = 3", "steps = 4"))
    ran = cli("runs", "start", config, "--resume")
    assert ran.code == 2 and "judge" in ran.err


def test_runs_start_interrupted_saves_checkpoint(
    cli: Cli, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer import loop

    sample_tasks = loop.sample_tasks

    def interrupted(*args: Any) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return sample_tasks(*args)

    monkeypatch.setattr(loop, "sample_tasks", interrupted)
    before = signal.getsignal(signal.SIGINT)
    ran = cli("runs", "start", config, "--json")
    assert ran.code == 130 and f"rubricsvc runs start {config} --resume" in ran.err
    assert ran.json["steps"] == 1
    assert (tmp_path / "runs" / "first" / "checkpoints" / "step-000001" / "model" / "model.safetensors").is_file()
    assert signal.getsignal(signal.SIGINT) is before


def test_runs_start_names_what_is_wrong(cli: Cli, config: Path) -> None:
    cases = [
        ("steps = 3", "steps = 3\nstep = 1", "  step: "),
        ("rubrics.yaml", "none.yaml", "none.yaml"),
        ('model = "policy"', 'model = "./nowhere"', "nowhere"),
        ('engine = "instant"', 'engine = "psychic"', "'psychic'"),
        ("[data]", '[data]\nformat = "xml"', "'xml'"),
    ]
    for old, new, named in cases:
        config.write_text(CONFIG.replace(old, new))
        ran = cli("runs", "start", config)
        assert ran.code in (2, 3) and named in ran.err
        assert "Traceback" not in ran.err


def test_runs_start_refuses_stored_drafts(cli: Cli, config: Path, rubric_file: Path) -> None:
    add_judge(cli)
    config.write_text(config.read_text().replace(CONFIG[CONFIG.index("[judge]") : CONFIG.index("[sampling]")], ""))
    config.write_text('judge = "quick"\n' + config.read_text().replace("steps = 3", "steps = 1"))
    assert cli("rubrics", "import", rubric_file, "--draft").code == 0
    refused = cli("runs", "start", config)
    assert refused.code == 2 and "first@1, second@1" in refused.err and "--allow-drafts" in refused.err
    assert cli("runs", "start", config, "--allow-drafts").code == 0
