"""`rubricsvc evolve` with a scripted model: templates and proposals, asked through jobs, and nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import evolving_model
from tests.cli import Cli, Ran, add_judge
from tests.scripted_server import ScriptedReply, ScriptedServer, scripted_server

SMALL = ("--generations", 2, "--islands", 2, "--children", 4, "--json")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(evolving_model.model) as running:
        yield running


def prepare(cli: Cli, tmp_path: Path, url: str, **endpoint: object) -> None:
    """Labelled completions, scored by the judge ``j``."""
    (tmp_path / "r.yaml").write_text(evolving_model.RUBRIC)
    assert cli("rubrics", "import", "r.yaml").code == 0
    assert cli("completions", "import", "-", stdin=evolving_model.completions()).code == 0
    add_judge(cli, "j", engine="openai_http", model="scripted", endpoint={"base_url": url, "max_retries": 0} | endpoint)
    ran = cli("jobs", "submit", "--judge", "j", "--rubric", "r", "--wait", "--json")
    assert ran.code == 0, ran.err
    ran = cli("labels", "import", "-", stdin=evolving_model.overall("r@1"))
    assert ran.code == 0, ran.err


def asked_twice(server: ScriptedServer) -> list[str]:
    counts = Counter(json.dumps(one, sort_keys=True) for one in server.requests)
    return [request for request, count in counts.items() if count > 1]


def evolve(cli: Cli, *args: object) -> Ran:
    ran = cli("evolve", "start", "r", *SMALL, *args)
    assert ran.code == 0, ran.err
    return ran


def test_evolve_without_a_model_asks_no_judge(cli: Cli, tmp_path: Path, server: ScriptedServer) -> None:
    prepare(cli, tmp_path, server.url)
    before = server.count
    found = evolve(cli).json
    assert (found["status"], found["jobs"], server.count) == ("completed", [], before)
    assert found["held_out"]["gain"] is False
    again = evolve(cli).json
    assert again == found
    listed = cli("evolve", "list", "--json").lines
    assert [(one["id"], one["status"], one["gain"]) for one in listed] == [(1, "completed", False)]
    rows = cli("evolve", "show", 1, "--candidates", "--json").lines
    assert [rows[0]["operator"], len(rows)] == ["start", listed[0]["candidates"]]
    assert cli("evolve", "show", 1, "--json").json == found == cli("evolve", "watch", 1, "--json").json


def test_evolve_finds_a_template_that_judges_better(cli: Cli, tmp_path: Path, server: ScriptedServer) -> None:
    prepare(cli, tmp_path, server.url)
    found = evolve(cli, "--template", "readout_short", "--seed", 2).json
    assert found["held_out"]["gain"] and found["best_candidate"]["template"] == "readout_short"
    assert found["jobs"] and not asked_twice(server)
    ran = cli("evolve", "best", found["id"], "--name", "better", "--judge-out", "judge.yaml", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["judge"]["template"] == "readout_short"
    assert cli("judges", "add", "-f", "judge.yaml", "--no-probe").code == 0
    added = cli("judges", "list", "--json").lines[-1]
    assert added["name"] == ran.json["judge"]["name"]


def test_evolve_finds_a_wording_that_a_model_proposes(cli: Cli, tmp_path: Path, server: ScriptedServer) -> None:
    prepare(cli, tmp_path, server.url)
    found = evolve(cli, "--proposer", "j").json
    assert found["held_out"]["gain"] and not asked_twice(server) and found["asked_again"] == 0
    texts = {one["text"] for one in evolving_model.PROPOSAL}
    assert texts & {one["text"] for one in found["best_candidate"]["rubric"]["criteria"]}
    ran = cli("evolve", "best", found["id"], "--json")
    assert (ran.code, ran.json["rubric"], ran.json["state"], ran.json["parent"]) == (0, "r@2", "draft", "r@1")
    assert cli("rubrics", "show", "r", "--json").json["version"] == 1
    page = tmp_path / "evolution.html"
    assert cli("evolve", "show", found["id"], "--out", page).code == 0
    assert "<svg" in page.read_text()


def test_evolve_stops_at_its_maximum_cost_and_continues(cli: Cli, tmp_path: Path, server: ScriptedServer) -> None:
    prepare(cli, tmp_path, server.url, price={"prompt": 1000.0, "completion": 1000.0})
    args = ("evolve", "start", "r", *SMALL, "--template", "readout_short", "--seed", 2)
    ran = cli(*args, "--budget", 1.0)
    assert ran.code == 2
    found = cli("evolve", "show", 1, "--json").json
    assert found["status"] == "budget_exhausted" and 0 < found["cost"] <= 1.0
    ran = cli("evolve", "start", "--resume", 1, "--budget", 100, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["status"] == "completed" and not asked_twice(server)


def test_evolve_refuses_a_limit_without_a_price_and_unknown_templates(
    cli: Cli, tmp_path: Path, server: ScriptedServer
) -> None:
    prepare(cli, tmp_path, server.url)
    for args in (("--template", "readout_short", "--budget", 1), ("--template", "none"), ("--proposer", "nobody")):
        assert cli("evolve", "start", "r", *args).code in (2, 3)
    assert cli("evolve", "list", "--json").out == ""
    assert cli("evolve", "start").code == 2 and cli("evolve", "show", 9).code == 3


def test_evolve_stops_while_its_models_are_away(cli: Cli, tmp_path: Path) -> None:
    away = False

    def script(number: int, request: dict[str, object]) -> ScriptedReply:
        return ScriptedReply(status=500, body=b"{}") if away else evolving_model.model(number, request)

    with scripted_server(script) as server:
        prepare(cli, tmp_path, server.url, outage_timeout_s=0)
        away = True
        args = ("evolve", "start", "r", *SMALL, "--template", "readout_short", "--seed", 2)
        for more in ((), ("--proposer", "j")):
            ran = cli(*args, *more)
            assert ran.code == 3, ran.err
        found = cli("evolve", "show", 1, "--json").json
        assert (found["status"], found["held_out"], len(found["jobs"])) == ("stopped", None, 1)
        away = False
        assert cli("jobs", "retry", found["jobs"][0], "--wait").code == 0
        ran = cli("evolve", "start", "--resume", 1, "--json")
        assert ran.code == 0 and ran.json["held_out"]["gain"]
        proposed = cli(*args, "--proposer", "j")
    assert proposed.code == 0, proposed.err


@pytest.mark.timeout(180)
def test_evolve_continues_after_a_kill_without_asking_twice(cli: Cli, tmp_path: Path) -> None:
    def slow(number: int, request: dict[str, object]) -> ScriptedReply:
        reply = evolving_model.model(number, request)
        return ScriptedReply(reply.text, reply.logprobs, delay_s=0.02)

    with scripted_server(slow) as server:
        prepare(cli, tmp_path, server.url, concurrency=4)
        before = server.count
        command = [sys.executable, "-m", "rubricsvc", "evolve", "start", "r", *map(str, SMALL), "--proposer", "j"]
        environment = os.environ | {"RUBRICSVC_LEASE_SECONDS": "3", "RUBRICSVC_RECONCILE_SECONDS": "0.5"}
        killed = 0
        for calls in (30, 60):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 60
            while process.poll() is None and server.count < before + calls and time.monotonic() < deadline:
                time.sleep(0.02)
            killed += process.poll() is None
            process.kill()
            process.wait()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        again = asked_twice(server)  # the questions about the completions that a killed process was asking about
        assert killed and len(again) <= 4 * 6 * killed < server.count / 2
        assert all('"logprobs": true' in request for request in again)
        whole = cli("evolve", "start", "r", *SMALL, "--proposer", "j", "--seed", 0)
        assert whole.json == found
        numbers = [one["number"] for one in found["lineage"]]
        assert numbers[0] == 0 and found["asked_again"] == 0 and found["status"] == "completed"
