"""`judges audit` from end to end: exit code, what is stored, and where it is shown. The judge answers by a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cli, Ran, add_judge
from tests.instant_engine import InstantEngine
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


def suites_of(ran: Ran) -> dict[str, Any]:
    return {suite["name"]: suite for suite in ran.json["suites"]}


def test_audit_stores_a_pass(judged: Cli) -> None:
    ran = judged("judges", "audit", "wise", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["passed"], ran.json["judge"]) == (True, "wise")
    assert suites_of(ran).keys() >= {"injection", "master_keys", "rationale", "criteria_order"}
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
        (("unknown",), 3),
        (("wise", "--suite", "x"), 2),
        (("wise", "--max-fpr", "much"), 2),
        (("wise", "--max-fpr", "injection=1.5"), 2),
        (("wise", "--max-fpr", "x=0.5"), 2),
        (("wise", "--data", "none.jsonl"), 2),
    ]
    for args, code in cases:
        ran = judged("judges", "audit", *args)
        assert ran.code == code and "hint: " in ran.err, ran.err
