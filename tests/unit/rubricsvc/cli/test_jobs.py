"""Submitting, and what can be asked about a job. The judge answers at once; the queue and the scoring are real."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from rubricsvc.settings import get_settings
from rubricsvc.store import budgets, jobs, leases
from rubricsvc.store.migrate import open_database
from tests.scripted_server import labels, scripted_server
from tests.services import free_port
from tests.unit.rubricsvc.cli.conftest import Cli
from workers.queue.drain import Drainer

pytestmark = pytest.mark.integration


@pytest.fixture
def ready(cli: Cli, rubric_file: Path) -> Cli:
    """Two rubrics, three completions (the third of a prompt without a rubric), a judge."""
    stdin = "".join(
        json.dumps({"prompt": prompt, "text": text, "policy": policy}) + "\n"
        for prompt, text, policy in (
            ("What is one?", "1", "a"),
            ("What is two?", "2", "b"),
            ("What is three?", "3", "b"),
        )
    )
    assert cli("rubric", "import", rubric_file).code == 0
    assert cli("completion", "import", "-", stdin=stdin).code == 0
    assert cli("judge", "add", "quick", "--engine", "instant", "--model", "m", "--no-probe").code == 0
    return cli


def drain(judge_id: int = 1) -> None:
    """What a worker does when the bell rings."""
    settings = get_settings()
    db = open_database(settings.database_url)
    Drainer(db, settings).run(judge_id)
    db.close()


def test_submit_show_export(ready: Cli, tmp_path: Path) -> None:
    ran = ready("job", "submit", "--judge", "quick", "--name", "mine", "--json")
    assert ran.code == 0
    assert ran.json["progress"]["total"] == 2
    assert "1 completions have no rubric for their prompt and are left out" in ran.err
    assert "nobody scores it yet: `rubricsvc jobs wait 1` does" in ran.err
    drain()
    assert ready("job", "show", 1, "--json").json["status"] == "completed"
    first, second = ready("job", "export", 1).lines
    assert (first["prompt_external_id"], first["rubric"], first["policy"]) == ("one", "first@1", "a")
    assert first["reward"] is not None and first["coverage"] == 1.0 and first["formula"] == "weighted_mean"
    assert [verdict["criterion"] for verdict in first["verdicts"]] == ["c1", "c2"]
    assert first["judge"] == "quick" and len(first["judge_digest"]) == 64
    out = tmp_path / "r.csv"
    ready("job", "export", 1, "--csv", "--out", out)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["completion_id"] for row in rows] == [str(first["completion_id"]), str(second["completion_id"])]
    assert list(json.loads(rows[0]["values"])) == ["c1", "c2"]
    verdicts = ready("verdict", "list", "--job", 1, "--json").lines
    assert len(verdicts) == 3 and {verdict["verdict"]["outcome"] for verdict in verdicts} == {"scored"}
    assert ready("verdict", "list", "--outcome", "failed").err == "no verdicts\n"


def test_the_same_job_twice_is_one(ready: Cli) -> None:
    one = ready("job", "submit", "--judge", "quick", "--json").json["id"]
    ran = ready("job", "submit", "--judge", "quick", "--json")
    assert ran.json["id"] == one and "is this job already" in ran.err
    other = ready("job", "submit", "--judge", "quick", "--key", "again", "--json").json["id"]
    assert other != one
    clash = ready("job", "submit", "--judge", "quick", "--key", "again", "--limit", 1)
    assert clash.code == 2 and "stands for another job" in clash.err


def test_choosing_completions(ready: Cli) -> None:
    def total(*args: object) -> int:
        return int(ready("job", "submit", "--judge", "quick", "--json", *args).json["progress"]["total"])

    assert total("--limit", 1) == 1
    assert total("--policy", "b") == 1
    assert total("--rubric", "first") == 1
    ready("rubric", "import", "-", stdin='{"name": "any", "criteria": ["Is kind."]}\n')
    assert total("--rubric", "any") == 3


def test_a_file_in_one_go(ready: Cli) -> None:
    stdin = '{"prompt": "What is one?", "text": "uno"}\n{"prompt": "What is two?", "text": "due"}\n'
    ran = ready("job", "submit", "-", "--judge", "quick", "--json", stdin=stdin)
    assert ran.json["progress"]["total"] == 2
    assert len(ready("completion", "list", "--json").lines) == 5
    whole = '{"name": "w", "prompt": "New?", "criteria": ["Is kind."], "completions": ["a", "b"]}\n'
    assert ready("job", "submit", "-", "--judge", "quick", "--json", stdin=whole).json["progress"]["total"] == 2


def test_a_bad_file_submits_nothing(ready: Cli) -> None:
    ran = ready("job", "submit", "-", "--judge", "quick", stdin='{"prompt": "Q", "text": "a"}\n{"prompt": "Q"}\n')
    assert ran.code == 2 and "<stdin>:2:" in ran.err
    assert ready("job", "list", "--json").out == ""
    assert len(ready("completion", "list", "--json").lines) == 3


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--judge", "none"], 3, "no judge 'none'"),
        (["--judge", "quick", "--rubric", "none"], 3, "no rubric 'none'"),
        (["--judge", "quick", "--policy", "none"], 2, "no completion of policy 'none' has a rubric"),
    ],
)
def test_nothing_to_submit(ready: Cli, args: list[str], code: int, words: str) -> None:
    ran = ready("job", "submit", *args)
    assert ran.code == code and words in ran.err


def test_cancel_and_retry(ready: Cli) -> None:
    ready("job", "submit", "--judge", "quick")
    assert ready("job", "cancel", 1, "--json").json["status"] == "cancelled"
    assert ready("job", "watch", 1).code == 1
    ran = ready("job", "retry", 1, "--json")
    assert "2 completions to be scored again" in ran.err and ran.json["status"] == "queued"
    drain()
    watched = ready("job", "watch", 1, "--json")
    assert watched.code == 0
    assert (watched.json["status"], watched.json["rewards"]) == ("completed", 2)
    assert [row["status"] for row in ready("job", "list", "--status", "completed", "--json").lines] == ["completed"]


def test_failures_end_with_1_and_are_told(ready: Cli) -> None:
    file = Path("bad.yaml")
    file.write_text("{name: odd, prompt: What is one?, criteria: [{text: a, check: {words: {min: 1}}}]}\n")
    ready("rubric", "import", file)
    ready("job", "submit", "--judge", "quick", "--rubric", "odd")
    settings = get_settings()
    db = open_database(settings.database_url)
    with db.write() as session:  # as if the workers had died again and again
        taken = leases.claim(session, 1, limit=5, worker="w", seconds=-1)
        assert taken
        assert leases.reconcile(session, max_leases=1) == 1
        jobs.finish(session)
    db.close()
    ran = ready("job", "watch", 1, "--json")
    assert (ran.code, ran.json["status"]) == (1, "completed_with_failures")
    (line,) = ready("job", "export", 1).lines
    assert line["reward"] is None and line["state"] == "failed"


@pytest.mark.integration
def test_a_cascade_tells_what_it_saved(ready: Cli) -> None:
    """The first is certain of everything, so that the second is never asked."""
    assert ready("judge", "add", "dear", "--engine", "instant", "--model", "n", "--no-probe").code == 0
    assert ready("judge", "cascade", "both", "quick", "dear").code == 0
    ran = ready("job", "submit", "--judge", "both", "--wait", "--json")
    assert ran.json["status"] == "completed"
    assert ran.json["voting"] == ready("job", "show", 1, "--json").json["voting"] == {"settled_early": 1.0}
    assert "both" in ready("judge", "list").out and "quick" in ready("judge", "show", "both").out


def test_wait_scores_here(ready: Cli) -> None:
    ran = ready("job", "submit", "--judge", "quick", "--wait", "--json")
    assert ran.code == 0
    assert (ran.json["status"], ran.json["rewards"], ran.json["failed_verdicts"]) == ("completed", 2, 0)
    assert "job 1: 2/2" in ran.err
    assert (ran.json["cached_share"], ready("job", "show", 1, "--json").json["cached_share"]) == (0.9, 0.9)
    again = ready("job", "wait", 1, "--json")
    assert again.code == 0
    assert "waited_seconds" in again.json and "seconds" not in again.json


def test_an_interrupt_before_the_watch_begins_says_how_to_go_on(ready: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workers.queue.in_process.embedded_worker", interrupted)
    ran = ready("job", "submit", "--judge", "quick", "--wait")
    assert ran.code == 130
    assert "Go on with: rubricsvc jobs wait 1" in ran.err


def test_a_broker_that_does_not_answer_is_told_and_the_job_is_waited_for(
    ready: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")
    get_settings.cache_clear()
    told: list[str] = []

    def work_once_told(text: str) -> None:
        told.append(text)
        if "waits for a worker" in text:
            drain()

    monkeypatch.setattr("rubricsvc.services.waiting.echo", work_once_told)
    ran = ready("job", "submit", "--judge", "quick", "--wait", "--json")
    assert (ran.code, ran.json["status"]) == (0, "completed")
    assert "the broker at redis://127.0.0.1:" in told[0] and "does not answer" in told[0]
    assert "job 1 is stored" in told[0]


def test_a_database_that_stays_away_ends_the_wait_and_says_how_to_go_on(
    ready: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("server closed the connection"))

    ready("job", "submit", "--judge", "quick")
    monkeypatch.setattr("rubricsvc.services.waiting.AWAY_SECONDS", 0.5)
    monkeypatch.setattr("rubricsvc.store.jobs.progress", away)
    ran = ready("job", "watch", 1)
    assert ran.code == 3
    assert "trying again for 0.5 s: server closed the connection" in ran.err
    assert "error: the database does not answer" in ran.err
    assert "Go on with: rubricsvc jobs wait 1" in ran.err


def test_a_failure_without_verdicts_is_explained(ready: Cli) -> None:
    ready("job", "submit", "--judge", "quick", "--limit", 1)
    db = open_database(get_settings().database_url)
    with db.write() as session:
        [lease] = leases.claim(session, 1, limit=1, worker="w", seconds=60)
        leases.fail(session, lease, "the result cannot be recorded: why")
        jobs.finish(session)
    db.close()
    ran = ready("job", "wait", 1)
    assert ran.code == 1 and "job export 1" in ran.err
    assert ready("job", "export", 1).lines[0]["null_reason"] == "the result cannot be recorded: why"


def test_jobs_that_are_not_there(ready: Cli) -> None:
    for verb in ("show", "watch", "wait", "cancel", "retry", "export"):
        ran = ready("job", verb, 99)
        assert ran.code == 3 and "no job 99" in ran.err


def test_only_states_that_there_are_can_be_listed(cli: Cli) -> None:
    ran = cli("job", "list", "--status", "foo")
    assert ran.code == 2 and "'foo' is not one of 'queued', 'in_progress'" in ran.err
    assert cli("job", "list", "--status", "completed_with_failures").code == 0
    ran = cli("verdict", "list", "--outcome", "foo")
    assert ran.code == 2 and "'scored', 'abstained', 'failed'" in ran.err


def test_a_limit_and_the_name_of_a_file_have_bounds(cli: Cli) -> None:
    ran = cli("job", "submit", "--judge", "j", "--limit", "9" * 30)
    assert ran.code == 2 and "--limit" in ran.err
    ran = cli("rubric", "lint", "")
    assert ran.code == 2 and "error: the name of the file is empty" in ran.err


def test_a_budget_is_kept_and_told(ready: Cli) -> None:
    usage = {"prompt_tokens": 300, "completion_tokens": 1}  # a prompt of some 1,000 bytes
    with scripted_server(replace(labels(Yes=0.9, No=0.1), usage=usage)) as server:
        add = ("judge", "add", "paid", "--url", server.url, "--model", "m", "--concurrency", 1)
        assert ready(*add, "--price", 1000, 0).code == 0
        submitted = ready("job", "submit", "--judge", "paid", "--budget", 0.1, "--wait", "--json")
        assert (submitted.code, submitted.json["status"], submitted.json["spent_usd"]) == (1, "budget_exhausted", 0)
        assert "job retry 1 --budget DOLLARS" in submitted.err
        assert re.search(r"no \$\d\.\d{3,} left, which this may cost", submitted.err)
        assert "which this may cost: the worst case of one call must fit into it" in submitted.err
        shown = ready("job", "show", 1, "--json").json
        assert (shown["status"], shown["spent_usd"], shown["budget_usd"]) == ("budget_exhausted", 0, 0.1)
        assert (shown["reserved_usd"], shown["lost_usd"]) == (0, 0)
        refused = ready("job", "retry", 1, "--wait")
        assert refused.code != 0 and "has spent $0 of its budget of $0.1" in refused.err
        again = ready("job", "retry", 1, "--budget", 20, "--wait", "--json")
        assert (again.code, again.json["status"], again.json["spent_usd"]) == (0, "completed", 0.9)


def test_what_was_lost_with_killed_workers_is_told(ready: Cli) -> None:
    ready("judge", "add", "paid", "--url", "http://127.0.0.1:9/v1", "--model", "m", "--no-probe", "--price", 1, 1)
    assert ready("job", "submit", "--judge", "paid", "--budget", 2).code == 0

    def told(*steps: Callable[[Session], object]) -> tuple[list[float], str]:
        db = open_database(get_settings().database_url)
        with db.write() as session:
            for step in steps:
                step(session)
        db.close()
        shown = ready("job", "show", 1, "--json")
        return [shown.json[f"{name}_usd"] for name in ("spent", "reserved", "lost")], shown.err

    figures, hint = told(lambda session: budgets.book(session, 1, "killed", spent=0.5, held=1.25))
    assert (figures, hint) == ([0.5, 1.25, 0], "")
    figures, hint = told(lambda session: budgets.close(session, 1))
    assert figures == [1.75, 0, 1.25]
    assert "$1.75 of its budget of $2 is spent ($1.25 of it lost with killed workers" in hint
    assert "--budget" not in hint
    figures, hint = told(lambda session: budgets.exhaust(session, 1), jobs.finish)
    assert figures == [1.75, 0, 1.25]
    assert "($1.25 of it lost with killed workers" in hint and "job retry 1 --budget DOLLARS" in hint


def test_a_budget_without_a_price_is_refused(ready: Cli) -> None:
    ready("judge", "add", "unknown", "--url", "http://127.0.0.1:9/v1", "--model", "m", "--no-probe")
    ran = ready("job", "submit", "--judge", "unknown", "--budget", 1)
    assert ran.code != 0 and "no price is known for unknown" in ran.err and "--price" in ran.err


REQUIRED: dict[str, Any] = {
    "name": "strict",
    "prompt": "What is one?",
    "criteria": [
        {"key": "sure", "text": "Is sure.", "required": True},
        {"text": "Says it.", "required": True, "check": {"words": {"min": 1}}},
    ],
}


def test_a_required_criterion_that_is_compared_is_warned_of(ready: Cli) -> None:
    ready("rubric", "import", "-", stdin=json.dumps(REQUIRED))
    add = ("judge", "add", "pairs", "--engine", "instant", "--model", "m", "--no-probe", "--mode", "comparative")
    assert ready(*add).code == 0
    ran = ready("job", "submit", "--judge", "pairs", "--rubric", "strict")
    assert ran.code == 0
    assert "warning: 'sure' of strict@1 is required, and pairs compares" in ran.err and "hint: " in ran.err
    for judge, rubric in (("quick", "strict"), ("pairs", "first")):
        assert "required" not in ready("job", "submit", "--judge", judge, "--rubric", rubric).err


def test_what_was_vetoed_is_told_with_the_criterion(ready: Cli) -> None:
    strict = REQUIRED | {"criteria": [{**REQUIRED["criteria"][1], "key": "long", "check": {"words": {"min": 9}}}]}
    ready("rubric", "import", "-", stdin=json.dumps(strict))
    ran = ready("job", "submit", "--judge", "quick", "--rubric", "strict", "--wait", "--json")
    assert (ran.json["mean_reward"], ran.json["vetoed"]) == (0, {"long": 1})
    assert "hint: 1 of 1 rewards are vetoed by a required criterion (long 1)" in ran.err
    shown = ready("job", "show", 1, "--json")
    same = ("rewards", "mean_reward", "reasons", "vetoed", "cached_share", "voting")
    assert {name: shown.json[name] for name in same} == {name: ran.json[name] for name in same}
    assert "hint: 1 of 1 rewards are vetoed" in shown.err
