"""`runs start` over Redis: scored by a worker of the same process where no other runs, else by the running ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import select

from rubricsvc.settings import get_settings
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from rubricsvc.store.tables import RolloutRow
from tests.cli import Cli
from tests.scripted_server import labels, scripted_server
from tests.tiny_model import tiny_model
from tests.worker_process import WorkerProcess, redis_url

CONFIG = """
steps = 1
policy = {{model = "policy", dtype = "float32"}}
data = {{path = "rubrics.yaml"}}
sampling = {{prompts_per_step = 2, group_size = 2, max_new_tokens = 4}}
judge = {{name = "remote", model = "scripted", endpoint = {{base_url = "{url}", max_retries = 0}}}}
"""


@pytest.mark.usefixtures("rubric_file")
def test_runs_start_uses_running_workers(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, log = redis_url(15), tmp_path / "log"
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", broker)
    get_settings.cache_clear()
    tiny_model(tmp_path / "policy")
    config = tmp_path / "first.toml"
    db = Database(get_settings().database_url)

    def running() -> int:
        with db.read() as session:
            return leases.running_workers(session)

    with scripted_server(labels(Yes=0.7, No=0.2)) as server:
        config.write_text(CONFIG.format(url=server.url))
        alone = cli("runs", "start", config, "--json")
        assert (alone.code, alone.json["scored_by"]) == (0, "celery"), alone.err
        assert "no other worker is running" in alone.err and running() == 0
        worker = WorkerProcess(log, database_url=db.url, broker_url=broker)
        try:
            deadline = time.monotonic() + 60
            while not running():
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            config.write_text(config.read_text().replace("steps = 1", "steps = 2"))
            served = cli("runs", "start", config, "--resume", "--json")
        finally:
            worker.kill()
    assert (served.code, served.json["steps"]) == (0, 2), served.err
    assert "by 1 running worker" in served.err
    with db.read() as session:
        rollouts = [(row.step, row.item_id is not None) for row in session.scalars(select(RolloutRow))]
    assert sorted(rollouts) == [(1, True)] * 4 + [(2, True)] * 4
    db.close()
