"""`judges audit` from end to end: the exit code, what is kept, and where it is shown. The judge answers by a rule."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli import Cli, add_judge
from tests.instant_engine import InstantEngine
from workers.audit import cases
from workers.engines import ENGINES
from workers.engines.base import EngineRequest, Failure, Reply

pytestmark = pytest.mark.integration

GOOD = [case.text for case in cases.built_in() if case.met] + ["It is right."]


class Knowing(InstantEngine):
    """Finds good what holds a good answer; ``gullible`` also what says `met`, and ``blind`` nothing."""

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
        monkeypatch.setitem(ENGINES, name, lambda judge: Knowing(judge.engine == "gullible", judge.engine == "blind"))
        add_judge(cli, name, engine=name)
    return cli


def test_a_judge_that_passes(judged: Cli) -> None:
    ran = judged("judges", "audit", "wise", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["passed"] is True and ran.json["judge"] == "wise"
    assert {one["name"] for one in ran.json["suites"]} >= {"injection", "master_keys", "rationale", "criteria_order"}
    listed = {row["name"]: row["audit"] for row in judged("judges", "list", "--json").lines}
    assert listed["wise"].startswith("passed 20") and listed["gullible"] is None
    shown = judged("judges", "show", "wise", "--json").json["newest_audit"]
    assert shown["passed"] is True and shown["audit"]["digest"] == ran.json["digest"]
    assert "injection 0" in judged("judges", "show", "wise").out


def test_a_judge_that_is_fooled(judged: Cli, tmp_path: Path) -> None:
    ran = judged("judges", "audit", "gullible", "--out", tmp_path / "report.html")
    assert ran.code == 4
    assert "gullible did not pass: " in ran.err and "injection (0." in ran.err and "successful attacks" in ran.out
    assert "authority and pity" in ran.out
    page = (tmp_path / "report.html").read_text()
    assert "not passed" in page and "://" not in page and "</instructions>" not in page
    assert judged("judges", "list", "--json").lines[1]["audit"].startswith("not passed")
    assert judged("judges", "audit", "gullible", "--max-fpr", "0.9").code == 0
    assert judged("judges", "list", "--json").lines[1]["audit"].startswith("passed"), "the newest one counts"


def test_a_reader_that_hangs_up_makes_no_audit_passed(judged: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert judged("judges", "audit", "gullible", "--suite", "injection").code == 4


def test_answers_that_were_not_attacked_are_no_attacks_that_worked(judged: Cli, tmp_path: Path) -> None:
    ran = judged("judges", "audit", "gullible", "--max-fpr", "plain=0", "--max-fpr", "missed=0", "--out", "report.html")
    assert "successful attacks" in ran.out and "without an attack" not in ran.out, (
        "of plain and missed nothing is wrong"
    )
    blind = judged("judges", "audit", "blind", "--suite", "trivial", "--out", "report.html")
    assert blind.code == 4 and "wrong without an attack" in blind.out and "successful attacks" not in blind.out
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Wrong without an attack</h2>" in page and "<b>missed</b>" in page and "Successful attacks" not in page


def test_a_bare_limit_is_one_of_false_positives_and_resets_no_other(judged: Cli) -> None:
    limits = {one["name"]: one["max_rate"] for one in judged("judges", "audit", "wise", "--json").json["suites"]}
    asked = ("judges", "audit", "wise", "--json", "--max-fpr", 0.4, "--max-fpr", "missed=0.3")
    now = {one["name"]: one["max_rate"] for one in judged(*asked).json["suites"]}
    reset = {"plain", "master_keys", "constant", "trivial", "injection"}
    assert {name for name in limits if now[name] != limits[name]} == reset | {"missed"}
    assert {now[name] for name in reset} == {0.4} and now["missed"] == 0.3


def test_a_look_at_one_suite_is_not_kept(judged: Cli) -> None:
    ran = judged("judges", "audit", "gullible", "--suite", "master_keys", "--json")
    assert ran.code == 0 and [one["name"] for one in ran.json["suites"]] == ["plain", "missed", "master_keys"]
    assert ran.err.endswith("not stored: only some of the suites were run\n")
    assert judged("judges", "show", "gullible", "--json").json["newest_audit"] is None


def test_own_data_and_the_prompts_of_a_job(judged: Cli, tmp_path: Path) -> None:
    records = [
        {"prompt": "Why?", "criteria": [{"key": "a", "text": "Is right."}], "completions": [text], "labels": {"a": met}}
        for text, met in (("It is right.", 1), ("It is wrong.", 0))
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, records)))
    ran = judged("judges", "audit", "wise", "--data", "own.jsonl", "--json")
    assert ran.code == 0, ran.err
    assert next(one for one in ran.json["suites"] if one["name"] == "missed")["rate"]["n"] == 1
    bare = {name: value for name, value in records[0].items() if name != "labels"} | {"id": "q"}
    (tmp_path / "job.jsonl").write_text(json.dumps(bare))
    assert judged("rubrics", "import", "job.jsonl").code == 0
    (tmp_path / "answers.jsonl").write_text(json.dumps({"prompt_id": "q", "text": "It is right."}))
    assert judged("jobs", "submit", "--judge", "wise", "--wait", "answers.jsonl").code == 0
    ran = judged("judges", "audit", "wise", "--job", 1, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["non_default_options"] == "--job 1"
    by_name = {one["name"]: one for one in ran.json["suites"]}
    assert by_name["injection"]["rate"]["n"] == 70 and by_name["missed"]["passed"] is None


def test_an_audit_that_is_not_as_shipped_is_told_as_such_wherever_it_is_kept(judged: Cli, tmp_path: Path) -> None:
    held = tmp_path / "sets" / "evalbiasbench"
    held.mkdir(parents=True)
    pairs = [
        {"id": n, "bias": "length", "instruction": f"Why {n}?", "response1": GOOD[n], "response2": "No.", "label": 1}
        for n in range(3)
    ]
    (held / "pairs.json").write_text(json.dumps(pairs))

    def told(*args: object) -> str:
        ran = judged("judges", "audit", "wise", "--json", *args)
        assert ran.code in (0, 4), ran.err
        said: str = judged("judges", "show", "wise", "--json").json["newest_audit"]["audit"]["non_default_options"]
        return said

    assert told() == told("--per-attack", 4, "--limit", 7) == ""
    assert told("--per-attack", 1) == "--per-attack 1"
    assert told("--per-attack", 0) == "--per-attack 0"
    assert told("--data-dir", "sets") == "--data-dir sets"
    said = "--per-attack 1 --data-dir sets --limit 2 --max-fpr 0.9"
    assert told("--data-dir", "sets", "--limit", 2, "--per-attack", 1, "--max-fpr", 0.9) == said


def test_an_interrupted_audit_goes_on(judged: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"count": 0, "stop": 30}
    ask = Knowing.ask

    async def counted(self: Knowing, request: EngineRequest) -> list[Reply | Failure]:
        asked["count"] += 1
        if asked["count"] == asked["stop"]:
            raise KeyboardInterrupt
        return await ask(self, request)

    monkeypatch.setattr(Knowing, "ask", counted)
    assert judged("judges", "audit", "wise", "--suite", "trivial").code == 130
    first = asked["count"]
    asked["stop"] = 0
    assert "resuming" not in judged("judges", "audit", "wise", "--suite", "praise").err, "another audit has its own"
    first = asked["count"]
    ran = judged("judges", "audit", "wise", "--suite", "trivial", "--json")
    assert ran.code == 0 and "resuming an interrupted audit: " in ran.err
    assert asked["count"] < first + 72, "what was judged is not asked again"
    before = asked["count"]
    ran = judged("judges", "audit", "wise", "--suite", "trivial", "--json")
    assert asked["count"] == before + 72 and "resuming" not in ran.err, "a new audit asks everything"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nobody",), "no judge 'nobody'"),
        (("wise", "--suite", "x"), "no suite 'x'"),
        (("wise", "--max-fpr", "much"), "expected a rate from 0 to 1, found 'much'"),
        (("wise", "--max-fpr", "injection=1.5"), "expected a rate from 0 to 1"),
        (("wise", "--max-fpr", "x=0.5"), "no suite 'x'"),
        (("wise", "--data", "a", "--job", "1"), "exclude each other"),
        (("wise", "--job", "7"), "no job 7"),
        (("wise", "--data", "none.jsonl"), "no such file"),
    ],
)
def test_what_cannot_be_done_is_said(judged: Cli, args: tuple[str, ...], words: str) -> None:
    ran = judged("judges", "audit", *args)
    assert ran.code in (2, 3) and words in ran.err and "hint: " in ran.err, ran.err


def test_an_attack_that_changed_nothing_is_told_as_such(judged: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def yes(self: Knowing, request: EngineRequest) -> list[Reply | Failure]:
        return [Reply(label_mass={"Yes": 0.9, "No": 0.1}) for _ in request.questions]

    monkeypatch.setattr(Knowing, "ask", yes)
    ran = judged("judges", "audit", "wise", "--suite", "injection")
    assert "injection (1.000 is over 0.05, no more than without the attack (1.000))" in ran.err
