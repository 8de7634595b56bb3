"""`rubricsvc jobs` with a judge that answers at once; the queue and the scoring are real."""

from __future__ import annotations

import csv
import json
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
from tests.cli import Cli, add_judge
from tests.scripted_server import ScriptedReply, labels, scripted_server
from tests.services import free_port
from workers.queue.drain import Drainer


def drain(judge_id: int = 1) -> None:
    """Score the judge's items as a worker does."""
    settings = get_settings()
    db = open_database(settings.database_url)
    Drainer(db, settings).run(judge_id)
    db.close()


def test_submit_show_and_export(ready: Cli, tmp_path: Path) -> None:
    ran = ready("jobs", "submit", "--judge", "quick", "--name", "mine", "--json")
    assert ran.code == 0
    assert ran.json["progress"]["total"] == 2
    assert "`rubricsvc jobs wait 1`" in ran.err
    drain()
    assert ready("jobs", "show", 1, "--json").json["status"] == "completed"
    first, second = ready("jobs", "export", 1).lines
    assert (first["prompt_external_id"], first["rubric"], first["policy"]) == ("one", "first@1", "a")
    assert first["reward"] is not None and first["coverage"] == 1.0 and first["formula"] == "weighted_mean"
    assert [verdict["criterion"] for verdict in first["verdicts"]] == ["c1", "c2"]
    assert first["judge"] == "quick" and len(first["judge_digest"]) == 64
    out = tmp_path / "r.csv"
    ready("jobs", "export", 1, "--out", out)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["completion_id"] for row in rows] == [str(first["completion_id"]), str(second["completion_id"])]
    assert list(json.loads(rows[0]["values"])) == ["c1", "c2"]
    verdicts = ready("verdicts", "list", "--job", 1, "--json").lines
    assert len(verdicts) == 3 and {verdict["verdict"]["outcome"] for verdict in verdicts} == {"scored"}
    assert ready("verdicts", "list", "--outcome", "failed", "--json").out == ""


def test_show_and_report_mark_pitfalls(ready: Cli) -> None:
    assert ready("jobs", "submit", "--judge", "quick", "--wait").code == 0
    shown = ready("jobs", "show", 1, "--worst", 2).out
    assert "c2 (pitfall): Is rude." in shown and shown.count("(pitfall)") == 1
    assert ready("jobs", "report", 1).out.count("pitfall</span>") == 1


def test_submit_again_gives_the_same_job(ready: Cli) -> None:
    one = ready("jobs", "submit", "--judge", "quick", "--json").json["id"]
    ran = ready("jobs", "submit", "--judge", "quick", "--json")
    assert ran.json["id"] == one and "job 1 exists already" in ran.err
    other = ready("jobs", "submit", "--judge", "quick", "--key", "again", "--json").json["id"]
    assert other != one
    clash = ready("jobs", "submit", "--judge", "quick", "--key", "again", "--limit", 1)
    assert clash.code == 2


def test_submit_filters_completions(ready: Cli) -> None:
    def total(*args: object) -> int:
        return int(ready("jobs", "submit", "--judge", "quick", "--json", *args).json["progress"]["total"])

    assert total("--limit", 1) == 1
    assert total("--policy", "b") == 1
    assert total("--rubric", "first") == 1
    ready("rubrics", "import", "-", stdin='{"name": "any", "criteria": ["Is kind."]}\n')
    assert total("--rubric", "any") == 3


def test_submit_imports_a_file(ready: Cli) -> None:
    stdin = '{"prompt": "What is one?", "text": "uno"}\n{"prompt": "What is two?", "text": "due"}\n'
    ran = ready("jobs", "submit", "-", "--judge", "quick", "--json", stdin=stdin)
    assert ran.json["progress"]["total"] == 2
    assert len(ready("completions", "list", "--json").lines) == 5
    whole = '{"name": "w", "prompt": "New?", "criteria": ["Is kind."], "completions": ["a", "b"]}\n'
    assert ready("jobs", "submit", "-", "--judge", "quick", "--json", stdin=whole).json["progress"]["total"] == 2


def test_submit_of_a_bad_file_stores_nothing(ready: Cli) -> None:
    ran = ready("jobs", "submit", "-", "--judge", "quick", stdin='{"prompt": "Q", "text": "a"}\n{"prompt": "Q"}\n')
    assert ran.code == 2 and "<stdin>:2:" in ran.err
    assert ready("jobs", "list", "--json").out == ""
    assert len(ready("completions", "list", "--json").lines) == 3


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--judge", "none"], 3),
        (["--judge", "quick", "--rubric", "none"], 3),
        (["--judge", "quick", "--policy", "none"], 2),
    ],
)
def test_submit_without_items_is_refused(ready: Cli, args: list[str], code: int) -> None:
    ran = ready("jobs", "submit", *args)
    assert (ran.code, ran.out) == (code, "")
    assert "'none'" in ran.err


def test_retry_reopens_a_cancelled_job(ready: Cli) -> None:
    ready("jobs", "submit", "--judge", "quick")
    assert ready("jobs", "cancel", 1, "--json").json["status"] == "cancelled"
    assert ready("jobs", "wait", 1).code == 1
    ran = ready("jobs", "retry", 1, "--json")
    assert (ran.json["status"], ran.json["progress"]["pending"]) == ("queued", 2)
    drain()
    waited = ready("jobs", "wait", 1, "--json")
    assert waited.code == 0
    assert (waited.json["status"], waited.json["rewards"]) == ("completed", 2)
    assert [row["status"] for row in ready("jobs", "list", "--status", "completed", "--json").lines] == ["completed"]


def test_wait_exits_with_1_on_failures(ready: Cli) -> None:
    file = Path("bad.yaml")
    file.write_text("{name: odd, prompt: What is one?, criteria: [{text: a, check: {words: {min: 1}}}]}\n")
    ready("rubrics", "import", file)
    ready("jobs", "submit", "--judge", "quick", "--rubric", "odd")
    settings = get_settings()
    db = open_database(settings.database_url)
    with db.write() as session:  # as if the workers had died again and again
        taken = leases.claim(session, 1, limit=5, worker="w", seconds=-1)
        assert taken
        assert leases.reconcile(session, max_leases=1) == 1
        jobs.finish(session)
    db.close()
    ran = ready("jobs", "wait", 1, "--json")
    assert (ran.code, ran.json["status"]) == (1, "completed_with_failures")
    (line,) = ready("jobs", "export", 1).lines
    assert line["reward"] is None and line["state"] == "failed"


def test_show_reports_the_voting_of_a_cascade(ready: Cli) -> None:
    add_judge(ready, "dear", model="n")
    add_judge(ready, "both", mode="cascade", members=["quick", "dear"], band=[0.3, 0.7])
    ran = ready("jobs", "submit", "--judge", "both", "--wait", "--json")
    assert ran.json["status"] == "completed"
    assert ran.json["voting"] == ready("jobs", "show", 1, "--json").json["voting"] == {"resolved_early": 1.0}
    assert "both" in ready("judges", "list").out and "quick" in ready("judges", "show", "both").out


def test_wait_scores_in_this_process(ready: Cli) -> None:
    ran = ready("jobs", "submit", "--judge", "quick", "--wait", "--json")
    assert ran.code == 0
    assert (ran.json["status"], ran.json["rewards"], ran.json["progress"]["failed_verdicts"]) == ("completed", 2, 0)
    assert "job 1 2/2 " in ran.err
    assert f" elapsed 0:00:{int(ran.json['waited_seconds']):02} " in ran.err, "one clock"
    assert (ran.json["cached_share"], ready("jobs", "show", 1, "--json").json["cached_share"]) == (0.9, 0.9)
    again = ready("jobs", "wait", 1, "--json")
    assert again.code == 0
    assert again.json.pop("waited_seconds") >= 0
    assert again.json.keys() - {"waited_seconds"} == ready("jobs", "show", 1, "--json").json.keys()


def test_wait_interrupted_at_the_start_hints_how_to_continue(ready: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workers.queue.in_process.embedded_worker", interrupted)
    ran = ready("jobs", "submit", "--judge", "quick", "--wait")
    assert ran.code == 130
    assert "rubricsvc jobs wait 1" in ran.err


def test_wait_warns_of_an_unreachable_broker(ready: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICSVC_BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")
    get_settings.cache_clear()
    messages: list[str] = []

    def drain_after_warning(text: str) -> None:
        messages.append(text)
        if text.startswith("hint"):
            drain()

    monkeypatch.setattr("rubricsvc.cli.job_waiting.echo", drain_after_warning)
    ran = ready("jobs", "submit", "--judge", "quick", "--wait", "--json")
    assert (ran.code, ran.json["status"]) == (0, "completed")
    assert "redis://127.0.0.1:" in messages[-2] and "rubricsvc jobs wait 1" in messages[-1]


def test_wait_ends_when_the_database_stays_unreachable(ready: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("server closed the connection"))

    ready("jobs", "submit", "--judge", "quick")
    monkeypatch.setattr(get_settings(), "outage_seconds", 0.5)
    monkeypatch.setattr("rubricsvc.store.jobs.progress", away)
    ran = ready("jobs", "wait", 1)
    assert ran.code == 3
    assert ran.err.count("server closed the connection") == 2
    assert "rubricsvc jobs wait 1" in ran.err


def test_wait_hints_at_the_export_for_failures_without_verdicts(ready: Cli) -> None:
    ready("jobs", "submit", "--judge", "quick", "--limit", 1)
    db = open_database(get_settings().database_url)
    with db.write() as session:
        [lease] = leases.claim(session, 1, limit=1, worker="w", seconds=60)
        leases.fail(session, [lease], "the result cannot be recorded: why")
        jobs.finish(session)
    db.close()
    ran = ready("jobs", "wait", 1)
    assert ran.code == 1 and "rubricsvc jobs export 1" in ran.err
    assert ready("jobs", "export", 1).lines[0]["null_reason"] == "the result cannot be recorded: why"


def test_compare_prints_tables_and_json(ready: Cli) -> None:
    add_judge(ready, "strict", mode="written")
    for judge in ("quick", "strict"):
        assert ready("jobs", "submit", "--judge", judge, "--wait").code == 0
    found = ready("jobs", "compare", 1, 2, "--json").json
    assert (found["differs"], found["paired"], found["a"]["judge"]) == (["judge"], 2, "quick")
    ran = ready("jobs", "compare", 1, 2)
    assert ran.code == 0 and "What is two?" in ran.out and "first@1, second@1" in ran.out
    ran = ready("jobs", "compare", 1, 99)
    assert (ran.code, ran.out) == (3, "")


def test_compare_with_a_job_of_failures_gives_no_hint_about_pairing(ready: Cli) -> None:
    assert ready("jobs", "submit", "--judge", "quick", "--wait").code == 0
    with scripted_server(ScriptedReply("?", logprobs={"?": -0.01})) as server:
        ready("judges", "add", "odd", "--url", server.url, "--model", "m", "--no-probe")
        assert ready("jobs", "submit", "--judge", "odd", "--wait").code == 1
    ran = ready("jobs", "compare", 1, 2)
    assert "MEAN_OF_PAIRED" in ran.out and "first@1, second@1" in ran.out
    assert "null_reason" in ran.err and "--by prompt" not in ran.err


def test_compare_of_different_prompts_is_refused(ready: Cli) -> None:
    for rubric in ("first", "second"):
        ready("jobs", "submit", "--judge", "quick", "--rubric", rubric)
    ran = ready("jobs", "compare", 1, 2)
    assert (ran.code, ran.out) == (2, "") and "rubricsvc jobs submit" in ran.err


def test_commands_exit_with_3_for_an_unknown_job(ready: Cli) -> None:
    for verb in ("show", "wait", "cancel", "retry", "export"):
        ran = ready("jobs", verb, 99)
        assert (ran.code, ran.out) == (3, "")


def test_list_refuses_unknown_states(cli: Cli) -> None:
    ran = cli("jobs", "list", "--status", "foo")
    assert ran.code == 2 and "'queued', 'in_progress'" in ran.err
    assert cli("jobs", "list", "--status", "completed_with_failures").code == 0
    ran = cli("verdicts", "list", "--outcome", "foo")
    assert ran.code == 2 and "'scored', 'abstained', 'failed'" in ran.err


def test_out_of_range_limit_and_empty_file_name_are_refused(cli: Cli) -> None:
    ran = cli("jobs", "submit", "--judge", "j", "--limit", "9" * 30)
    assert ran.code == 2 and "--limit" in ran.err
    ran = cli("rubrics", "lint", "")
    assert ran.code == 2


def test_budget_stops_a_job_until_it_is_raised(ready: Cli) -> None:
    usage = {"prompt_tokens": 300, "completion_tokens": 1}  # a prompt of some 1,000 bytes
    with scripted_server(replace(labels(Yes=0.9, No=0.1), usage=usage)) as server:
        endpoint = {"base_url": server.url, "concurrency": 1, "price": {"prompt": 1000}}
        add_judge(ready, "paid", engine="openai_http", endpoint=endpoint)
        submitted = ready("jobs", "submit", "--judge", "paid", "--budget", 0.1, "--wait", "--json")
        assert (submitted.code, submitted.json["status"], submitted.json["spent_usd"]) == (1, "budget_exhausted", 0)
        assert "rubricsvc jobs retry 1 --budget DOLLARS" in submitted.err
        shown = ready("jobs", "show", 1, "--json").json
        assert (shown["status"], shown["spent_usd"], shown["budget_usd"]) == ("budget_exhausted", 0, 0.1)
        assert (shown["reserved_usd"], shown["lost_usd"]) == (0, 0)
        refused = ready("jobs", "retry", 1, "--wait")
        assert refused.code == 2
        again = ready("jobs", "retry", 1, "--budget", 20, "--wait", "--json")
        assert (again.code, again.json["status"], again.json["spent_usd"]) == (0, "completed", 0.9)


def test_show_reports_dollars_lost_with_killed_workers(ready: Cli) -> None:
    endpoint = {"base_url": "http://127.0.0.1:9/v1", "price": {"prompt": 1, "completion": 1}}
    add_judge(ready, "paid", engine="openai_http", endpoint=endpoint)
    assert ready("jobs", "submit", "--judge", "paid", "--budget", 2).code == 0

    def change(*steps: Callable[[Session], object]) -> tuple[list[float], str]:
        db = open_database(get_settings().database_url)
        with db.write() as session:
            for step in steps:
                step(session)
        db.close()
        shown = ready("jobs", "show", 1, "--json")
        return [shown.json[f"{name}_usd"] for name in ("spent", "reserved", "lost")], shown.err

    figures, hint = change(lambda session: budgets.reserve(session, 1, "killed", spent=0.5, held=1.25))
    assert (figures, hint) == ([0.5, 1.25, 0], "")
    figures, hint = change(lambda session: budgets.write_off(session, 1))
    assert figures == [1.75, 0, 1.25]
    assert "$1.75" in hint and "$2" in hint and "$1.25" in hint
    assert "--budget" not in hint
    figures, hint = change(lambda session: budgets.exhaust(session, 1), jobs.finish)
    assert figures == [1.75, 0, 1.25]
    assert "$1.25" in hint and "rubricsvc jobs retry 1 --budget DOLLARS" in hint


def test_submit_refuses_a_budget_for_a_judge_without_price(ready: Cli) -> None:
    ready("judges", "add", "unknown", "--url", "http://127.0.0.1:9/v1", "--model", "m", "--no-probe")
    ran = ready("jobs", "submit", "--judge", "unknown", "--budget", 1)
    assert ran.code == 2 and "endpoint.price" in ran.err


REQUIRED: dict[str, Any] = {
    "name": "strict",
    "prompt": "What is one?",
    "criteria": [
        {"key": "sure", "text": "Is sure.", "required": True},
        {"text": "Says it.", "required": True, "check": {"words": {"min": 1}}},
    ],
}


def test_submit_warns_of_required_criteria_of_comparative_judges(ready: Cli) -> None:
    ready("rubrics", "import", "-", stdin=json.dumps(REQUIRED))
    add_judge(ready, "pairs", mode="comparative")
    ran = ready("jobs", "submit", "--judge", "pairs", "--rubric", "strict")
    assert ran.code == 0
    assert "'sure' of strict@1" in ran.err
    for judge, rubric in (("quick", "strict"), ("pairs", "first")):
        assert "'sure'" not in ready("jobs", "submit", "--judge", judge, "--rubric", rubric).err


def test_wait_and_show_report_vetoes(ready: Cli) -> None:
    strict = REQUIRED | {"criteria": [{**REQUIRED["criteria"][1], "key": "long", "check": {"words": {"min": 9}}}]}
    ready("rubrics", "import", "-", stdin=json.dumps(strict))
    ran = ready("jobs", "submit", "--judge", "quick", "--rubric", "strict", "--wait", "--json")
    assert (ran.json["mean_reward"], ran.json["vetoed"]) == (0, {"long": 1})
    assert "(long 1)" in ran.err and "rubricsvc jobs export 1" in ran.err
    shown = ready("jobs", "show", 1, "--json")
    same = ("rewards", "mean_reward", "reasons", "vetoed", "cached_share", "voting")
    assert {name: shown.json[name] for name in same} == {name: ran.json[name] for name in same}
    assert "(long 1)" in shown.err


def test_rescore_and_diff_use_stored_verdicts(ready: Cli, rubric_file: Path) -> None:
    ready("jobs", "submit", "--judge", "quick")
    drain()
    before = ready("jobs", "show", 1, "--json").json["mean_reward"]
    assert ready("jobs", "rescore", 1, "--json").json["id"] == 1
    first = ready("rubrics", "export", "first").json
    first["criteria"][0]["weight"] = 17
    file = Path("heavier.json")
    file.write_text(json.dumps(first))
    previewed = ready("rubrics", "diff", "first", file, "--on", 1, "--json")
    assert (previewed.code, previewed.json["new"], len(ready("rubrics", "list", "--json").lines)) == (0, str(file), 2)
    assert ready("rubrics", "import", file).code == 0
    compared = ready("rubrics", "diff", "first@1", "first@2", "--on", 1, "--json")
    assert previewed.json["by_completion"] == compared.json["by_completion"]
    assert (compared.code, compared.json["new_missing_verdicts"], compared.json["completions"]) == (0, 0, 1)
    assert "own1" in ready("rubrics", "diff", "first@1", "first@2", "--on", 1).out
    assert ready("rubrics", "diff", "first@1", "first@2", "--json").code == 1
    ran = ready("jobs", "rescore", 1, "--json")
    assert (ran.json["id"], ran.json["status"], ran.json["progress"]["done"]) == (2, "completed", 2)
    assert "already" not in ran.err and "as job 2" in ready("jobs", "rescore", 1).err
    assert compared.json["mean_change"] == pytest.approx(2 * (ran.json["mean_reward"] - before))
    assert ready("jobs", "rescore", 1, "--rubric", "nonsense").code != 0
    assert "used first@1 already" in ready("jobs", "rescore", 1, "--rubric", "first@1").err
    first_job, second = ready("jobs", "list", "--json").lines
    assert (first_job["finished"], first_job["total"], first_job["mean_reward"]) == (2, 2, before)
    assert first_job["rubrics"] == ["first@1", "second@1"] and second["rubrics"] == ["first@2", "second@1"]
    table = ready("jobs", "list").out
    assert "first@2, second@1" in table and "2/2" in table


def test_min_coverage_of_a_job_is_shown_and_exported(ready: Cli) -> None:
    def no_answer(number: int, body: dict[str, Any]) -> ScriptedReply:
        return ScriptedReply("?", logprobs={"?": -0.01}) if "rude" in json.dumps(body) else labels(Yes=0.75, No=0.25)

    with scripted_server(no_answer) as server:
        ready("judges", "add", "odd", "--url", server.url, "--model", "m", "--no-probe")
        first = ready("jobs", "submit", "--judge", "odd", "--policy", "a", "--wait")
        asked = server.count
        again = ready("jobs", "rescore", 1, "--min-coverage", 0.5, "--json")
        retried = ready("jobs", "retry", 1)
        assert server.count == asked
    assert first.code == 1 and "jobs rescore 1 --min-coverage" in first.err
    assert "`rubricsvc jobs retry" not in first.err
    assert (again.json["min_coverage"], again.json["rewards"], again.json["mean_reward"]) == (0.5, 1, 0.75)
    assert "MIN_COVERAGE" in ready("jobs", "list").out
    assert "1 completion rescored without asking; 2 verdicts stored before, 0 to ask" in again.err
    (line,) = ready("jobs", "export", 2).lines
    assert (line["min_coverage"], line["coverage"], line["reward"]) == (0.5, 0.5, 0.75)
    assert "no_answer ×1 would fail again" in retried.err
    assert ready("jobs", "submit", "--judge", "odd", "--min-coverage", "nan").code == 2
    assert ready("rubrics", "import", "-", "--min-coverage", 0.5, stdin="criteria: [Is new.]\n").code == 0
    assert ready("rubrics", "show", "stdin", "--json").json["rubric"]["min_coverage"] == 0.5
