"""`runs start` over Redis: scored by a worker of the same process where no other runs, else by the running ones."""

from pathlib import Path

import pytest
from sqlalchemy import select

from rubricsvc.settings import get_settings
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from rubricsvc.store.tables import RolloutRow
from tests.cli import Cli
from tests.scripted_server import labels, scripted_server
from tests.service_process import drained, running
from tests.services import wait_for
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
    broker, log = redis_url(), tmp_path / "log"
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", broker)
    get_settings.cache_clear()
    tiny_model(tmp_path / "policy")
    config = tmp_path / "first.toml"
    db = Database(get_settings().database_url)

    def workers() -> int:
        with db.read() as session:
            return leases.running_workers(session)

    with scripted_server(labels(Yes=0.7, No=0.2)) as server:
        config.write_text(CONFIG.format(url=server.url))
        alone = cli("runs", "start", config, "--json")
        assert (alone.code, alone.json["config"]["scored_by"]) == (0, "celery"), alone.err
        assert "no other worker is running" in alone.err and workers() == 0
        worker = WorkerProcess(log, database_url=db.url, broker_url=broker)
        try:
            wait_for(workers, log)
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


REMOTE = """
steps = 1
policy = {model = "policy", dtype = "float32"}
data = {store = ["first", "second"]}
judge = "quick"
sampling = {prompts_per_step = 2, group_size = 2, max_new_tokens = 4}
eval = {path = "held-out.yaml", every = 2, samples = 2, greedy = false}
"""


def test_runs_work_the_same_at_a_remote_service(ready: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With RUBRICSVC_URL judges, rubrics and the record of a run are those of the service, and no database is made."""
    tiny_model(tmp_path / "policy")
    held_out = "".join(f'- {{prompt: What is {n}0?, criteria: ["Is kind."]}}\n' for n in range(6))
    (tmp_path / "held-out.yaml").write_text(held_out)
    for name, change in (("run", ""), ("other", "seed = 1\n")):
        (tmp_path / f"{name}.toml").write_text(change + REMOTE)
    (tmp_path / "own.toml").write_text(REMOTE.replace('"quick"', '{name = "own", engine = "instant", model = "own"}'))
    (tmp_path / "sweep.toml").write_text('base = "run.toml"\nvary = {optim.lr = [1e-3, 1e-2]}\n')
    url = get_settings().database_url
    db = Database(url)
    with drained(db), running(db) as service:
        monkeypatch.setenv("RUBRICSVC_URL", service)
        monkeypatch.setenv("RUBRICSVC_DATABASE_URL", f"sqlite:///{tmp_path}/absent.db")
        get_settings.cache_clear()
        checked = ready("runs", "preflight", "run.toml", "--prompts", 2, "--json")
        assert {"accuracy", "sizes", "signal"} <= {one["name"] for one in checked.lines}, checked.err
        started = [ready("runs", "start", f"{name}.toml", "--force", "--json") for name in ("run", "other", "own")]
        assert [(one.code, one.json["steps"], one.json["config"]["scored_by"]) for one in started] == [
            (0, 1, "celery")
        ] * 3
        swept = ready("runs", "sweep", "sweep.toml", "--force", "--json")
        assert (swept.code, swept.json["trained"]) == (0, 2), swept.err
        commands = [("show", "runs/run", "--last", 2), ("show", 1, "--evaluations"), ("compare", 1, 2)]
        there = [ready("runs", *one, "--json").out for one in commands]
        (tmp_path / "absent.toml").write_text(REMOTE.replace('"quick"', '"absent"').replace('"second"', '"third"'))
        absent = ready("runs", "start", "absent.toml")
        assert absent.code == 3 and "judge: " in absent.err and "data.store.1: " in absent.err
        assert ready("runs", "stop", 1).code == 2 and ready("delete", "runs", 2, "--yes").code == 0
        monkeypatch.delenv("RUBRICSVC_URL")
        assert not (tmp_path / "absent.db").exists()
        monkeypatch.setenv("RUBRICSVC_DATABASE_URL", url)
        get_settings.cache_clear()
        assert [ready("runs", *one, "--json").out for one in commands[:2]] == there[:2]
        assert [one["judge"] for one in ready("runs", "show", "--json").lines] == ["quick", "own", "quick", "quick"]
    db.close()
