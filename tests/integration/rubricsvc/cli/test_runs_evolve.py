"""`runs start` with [evolve]: a tiny model is trained, the proposer is behind a real socket, a person approves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli
from tests.letter_judge import proposal
from tests.scripted_server import ScriptedServer, error, scripted_server, text_reply
from tests.tiny_model import tiny_model

CONFIG = """
steps = 2
policy = {{model = "policy", dtype = "float32"}}
data = {{path = "rubrics.yaml"}}
judge = {{name = "letters", engine = "letters", model = "m"}}
sampling = {{prompts_per_step = 2, group_size = 8, max_new_tokens = 16}}

[evolve]
every = 1
approve = "{approve}"

[evolve.proposer]
name = "proposer"
model = "scripted"
endpoint = {{base_url = "{url}", max_retries = 0, outage_timeout_s = 0}}
"""


@pytest.fixture
def proposer(tmp_path: Path, rubric_file: Path) -> Iterator[ScriptedServer]:
    tiny_model(tmp_path / "policy")
    with scripted_server(text_reply(proposal("a", "s", pitfalls=["e"]))) as server:
        yield server


def configured(folder: Path, server: ScriptedServer, approve: str = "auto") -> Path:
    path = folder / "first.toml"
    path.write_text(CONFIG.format(url=server.url, approve=approve))
    return path


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs" / "first" / "metrics.jsonl").read_text().splitlines()]


def test_runs_start_evolves_and_resumes(cli: Cli, tmp_path: Path, proposer: ScriptedServer) -> None:
    """Prompts and rubrics of a file that was not imported keep their names."""
    config = configured(tmp_path, proposer)
    ran = cli("runs", "start", config, "--json")
    assert (ran.code, ran.json["steps"]) == (0, 2), ran.err
    run = json.loads((tmp_path / "runs" / "first" / "config.json").read_text())["run"]
    assert run.startswith("first-")
    (listed,) = cli("evolve", "show", "--prompt", "one", "--json").lines
    assert (listed["run"], listed["rubric"], listed["steps"]) == (run, "first@1", 2)
    entries = cli("evolve", "show", listed["id"], "--json").json["entries"]
    assert [one["state"] for one in entries[:2]] == ["frozen", "frozen"]
    assert any(one["state"] == "active" for one in entries[2:])
    assert "evolved-1" in cli("evolve", "show", listed["id"]).out
    first, second = cli("evolve", "show", listed["id"], "--json").json["rounds"]
    assert (first["used"], first["wrote"], second["used"]) == ("first@1", f"first-{run}@1", f"first-{run}@1")
    assert first["round"]["proposer"] == "proposer"
    assert [reason.partition(" ")[0] for reason in second["round"]["refused"].values()] == ["duplicate"] * 3
    history = cli("rubrics", "show", f"first-{run}@1", "--history", "--json").json["reviews"]
    assert history[-1]["by"] == run and "evolved-" in history[-1]["comment"]
    steps = metrics(tmp_path)
    assert [step["evolve/rounds"] for step in steps] == [2, 2]

    proposer.script = error(503)
    config.write_text(config.read_text().replace("steps = 2", "steps = 3"))
    resumed = cli("runs", "start", config, "--resume", "--json")
    assert (resumed.code, resumed.json["steps"]) == (0, 3), resumed.err
    assert metrics(tmp_path)[-1]["evolve/failed"] == 2
    last = cli("evolve", "show", listed["id"], "--json").json["rounds"][-1]
    assert last["round"]["failure"].startswith("server_error") and last["used"].startswith(f"first-{run}@")
    assert cli("evolve", "show", "--run", "another").err.strip()


def test_runs_start_uses_versions_once_a_person_approves_them(
    cli: Cli, both: Cli, tmp_path: Path, proposer: ScriptedServer
) -> None:
    """The run is started at a service, and continued with its database."""
    config = configured(tmp_path, proposer, "human")
    config.write_text('scored_by = "in_process"\n' + config.read_text())
    assert cli("rubrics", "import", "rubrics.yaml").code == 0
    assert both("runs", "start", config, only_there=True).code == 0
    drafts = cli("rubrics", "list", "--state", "draft", "--json").lines
    assert {one["origin"] for one in drafts} == {"evolved"}
    ref = next(f"{one['name']}@{one['version']}" for one in drafts if one["name"].startswith("first-"))
    (listed,) = cli("evolve", "show", "--prompt", "one", "--json").lines
    assert {one["used"] for one in cli("evolve", "show", listed["id"], "--json").json["rounds"]} == {"first@1"}
    for action in ("submit", "approve"):
        assert cli("rubrics", "review", ref, action).code == 0
    config.write_text(config.read_text().replace("steps = 2", "steps = 3"))
    assert cli("runs", "start", config, "--resume").code == 0
    assert cli("evolve", "show", listed["id"], "--json").json["rounds"][-1]["used"] == ref
