"""`runs start` in a separate process while the judge's server is down: it pauses, goes on, and stops on Ctrl-C."""

import signal
import time
from pathlib import Path

from rubricsvc.schemas.runs import StoredRun
from rubricsvc.services.runs import Runs
from rubricsvc.store.session import Database
from tests.cli import rubric_file
from tests.scripted_server import error, labels, scripted_server
from tests.tiny_model import tiny_model
from tests.worker_process import WorkerProcess

__all__ = ["rubric_file"]

CONFIG = """
steps = 100000
checkpoint_every = 0
pause_after = 1
policy = {{model = "policy", dtype = "float32"}}
data = {{path = "{rubrics}"}}
sampling = {{prompts_per_step = 2, group_size = 2, max_new_tokens = 4}}

[judge]
name = "remote"
model = "scripted"
endpoint = {{base_url = "{url}", max_retries = 0, outage_timeout_s = 0}}
"""


def wait_for_run(db: Database, log: Path, *, status: str, steps: int = 0) -> StoredRun:
    """Wait until the run has this status and so many steps."""
    deadline = time.monotonic() + 120
    while True:
        found = list(Runs(db).page())
        if found and found[0].status == status and found[0].steps >= steps:
            return found[0]
        assert time.monotonic() < deadline, (found, log.read_text())
        time.sleep(0.1)


def test_run_pauses_while_the_server_is_down_and_stops_with_a_checkpoint(
    db: Database, tmp_path: Path, rubric_file: Path
) -> None:
    tiny_model(tmp_path / "policy")
    config, log = tmp_path / "first.toml", tmp_path / "log"
    yes = labels(Yes=0.7, No=0.2)
    with scripted_server(yes) as server:
        config.write_text(CONFIG.format(url=server.url, rubrics=rubric_file))
        command = "runs start --no-preflight"  # all rewards are the same
        training = WorkerProcess(log, str(config), command=command, database_url=db.url, broker_url="memory://")
        try:
            wait_for_run(db, log, status="running", steps=2)
            server.script = error(503)
            paused = wait_for_run(db, log, status="paused")
            assert "have no reward" in str(paused.reason)
            server.script = yes
            wait_for_run(db, log, status="running", steps=paused.steps + 2)
            server.script = error(503)
            paused = wait_for_run(db, log, status="paused")
            training.process.send_signal(signal.SIGINT)
            assert training.process.wait(60) == 130, log.read_text()
        finally:
            training.kill()
    stopped = wait_for_run(db, log, status="stopped")
    assert stopped.steps == paused.steps
    assert (tmp_path / "runs" / "first" / "checkpoints" / f"step-{paused.steps:06d}" / "state.json").is_file()
