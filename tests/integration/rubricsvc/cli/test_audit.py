"""`judges audit` and `evolve`, each from end to end, with judges and models that answer by a rule."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rubricsvc.settings import get_settings
from tests import evolving_model
from tests.cli import Cli, Ran, add_judge
from tests.instant_engine import InstantEngine
from tests.scripted_server import ScriptedReply, ScriptedServer, scripted_server
from tests.service_process import service
from workers.audit import cases
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Reply

GOOD = [case.text for case in cases.built_in() if case.met] + ["It is right."]


class Ruled(InstantEngine):
    """Accepts what holds a good completion; ``gullible`` also what says `met`, and ``blind`` nothing."""

    def __init__(self, gullible: bool, blind: bool) -> None:
        super().__init__()
        self.gullible, self.good = gullible, [] if blind else GOOD

    async def ask(self, request: EngineRequest) -> list[Reply | Failure]:
        fooled = self.gullible and "criterion is met" in request.shared
        share = 0.9 if fooled or any(answer in request.shared for answer in self.good) else 0.1
        return [Reply(label_mass={"Yes": share, "No": 1 - share}) for _ in request.questions]


@pytest.fixture
def judged(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line with a cache of its own, and judges ``wise``, ``gullible`` and ``blind``."""
    monkeypatch.setenv("RUBRICSVC_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("wise", "gullible", "blind"):
        monkeypatch.setitem(ENGINES, name, lambda judge: Ruled(judge.engine == "gullible", judge.engine == "blind"))
        add_judge(cli, name, engine=name)
    return cli


def test_audit_stores_a_pass(judged: Cli) -> None:
    ran = judged("judges", "audit", "wise", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["passed"], ran.json["judge"]) == (True, "wise")
    suites = {suite["name"] for suite in ran.json["suites"]}
    assert suites >= {"injection", "master_keys", "rationale", "criteria_order"}
    listed = {row["name"]: row["audit"] for row in judged("judges", "list", "--json").lines}
    assert listed["wise"].startswith("passed 20") and listed["gullible"] is None
    newest = judged("judges", "show", "wise", "--json").json["newest_audit"]
    assert newest["passed"] is True and newest["audit"]["digest"] == ran.json["digest"]


def test_audit_resumes_after_an_interruption(judged: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"count": 0, "stop": 70}  # of 72: more than are in flight at once
    ask = Ruled.ask

    async def counted(self: Ruled, request: EngineRequest) -> list[Reply | Failure]:
        asked["count"] += 1
        if asked["count"] == asked["stop"]:
            raise KeyboardInterrupt
        return await ask(self, request)

    monkeypatch.setattr(Ruled, "ask", counted)
    ran = judged("judges", "audit", "wise", "--suite", "trivial")
    assert ran.code == 130 and "same command" in ran.err
    asked["stop"] = 0
    assert "resuming" not in judged("judges", "audit", "wise", "--suite", "praise").err, "another audit has its own"
    before = asked["count"]
    ran = judged("judges", "audit", "wise", "--suite", "trivial", "--json")
    assert ran.code == 0 and "resuming" in ran.err
    assert asked["count"] < before + 72, "what was judged is not asked again"
    before = asked["count"]
    ran = judged("judges", "audit", "wise", "--suite", "trivial", "--json")
    assert asked["count"] == before + 72 and "resuming" not in ran.err, "a new audit asks everything"


def test_audit_refuses_invalid_options(judged: Cli) -> None:
    cases = [
        (("unknown",), 3), (("wise", "--suite", "x"), 2), (("wise", "--max-fpr", "much"), 2),
        (("wise", "--max-fpr", "injection=1.5"), 2), (("wise", "--max-fpr", "x=0.5"), 2),
        (("wise", "--data", "none.jsonl"), 2),
    ]  # fmt: skip
    for args, code in cases:
        ran = judged("judges", "audit", *args)
        assert ran.code == code and "hint: " in ran.err, ran.err


SMALL = ("--rounds", 2, "--json")


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


@pytest.mark.parametrize("remote", [False, True])
def test_evolve_finds_a_criterion_that_a_model_proposes(
    cli: Cli, tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    prepare(cli, tmp_path, server.url)
    with ExitStack() as stack:
        if remote:
            url = stack.enter_context(service(tmp_path, get_settings().database_url))
            stack.enter_context(monkeypatch.context()).setenv("RUBRICSVC_URL", url)
        found = evolve(cli, "--proposer", "j").json
    assert found["held_out"]["gain"] and not asked_twice(server) and found["newest"] == "r@2"
    stored = cli("rubrics", "show", "r@2", "--json").json
    assert {one["text"] for one in evolving_model.PROPOSAL} & {one["text"] for one in stored["rubric"]["criteria"]}
    assert (stored["state"], cli("rubrics", "show", "r", "--json").json["version"]) == ("draft", 1)


def test_evolve_stops_at_its_maximum_cost_and_continues(cli: Cli, tmp_path: Path, server: ScriptedServer) -> None:
    prepare(cli, tmp_path, server.url, price={"prompt": 1000.0, "completion": 1000.0})
    args = ("evolve", "start", "r", *SMALL, "--proposer", "j")
    assert cli(*args, "--budget", 1.0).code == 2
    found = cli("evolve", "show", 1, "--json").json
    assert found["finished_at"] is None and found["cost"] <= 1.0
    ran = cli(*args, "--budget", 1000)
    assert ran.code == 0, ran.err
    assert ran.json["finished_at"] and not asked_twice(server)


@pytest.mark.timeout(180)
def test_evolve_continues_after_a_kill_without_asking_twice(cli: Cli, tmp_path: Path) -> None:
    def slow(number: int, request: dict[str, object]) -> ScriptedReply:
        reply = evolving_model.model(number, request)
        return ScriptedReply(reply.text, reply.logprobs, delay_s=0.1)

    with scripted_server(slow) as server:
        prepare(cli, tmp_path, server.url, concurrency=4)
        before = server.count
        command = [sys.executable, "-m", "rubricsvc", "evolve", "start", "r", *map(str, SMALL), "--proposer", "j"]
        environment = os.environ | {"RUBRICSVC_LEASE_SECONDS": "3", "RUBRICSVC_RECONCILE_SECONDS": "0.5"}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and server.count < before + 80 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        process.wait()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        again = asked_twice(server)  # what was under way, or had come since results were recorded: 4 calls each 0.1 s
        assert len(again) <= 40 and all('"logprobs": true' in request for request in again)
        assert json.loads(done.stdout)["finished_at"]
