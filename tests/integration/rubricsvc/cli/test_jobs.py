"""``jobs`` from submit to export."""

import csv
import json
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from pyarrow import parquet

from rubricsvc.cli.jobs import _cells
from rubricsvc.cli.output import UNAVAILABLE
from rubricsvc.formats.writing import write_text
from rubricsvc.settings import get_settings
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge
from tests.scripted_server import labels, scripted_server
from workers.queue.drain import Drainer


def drain(judge_id: int = 1) -> None:
    """Score the judge's items as a worker does."""
    with closing(Database(get_settings().database_url)) as db:
        Drainer(db, get_settings()).run(judge_id)


def test_submit_show_and_export(ready: Cli, tmp_path: Path) -> None:
    ran = ready("jobs", "submit", "--judge", "quick", "--name", "mine", "--json")
    assert ran.code == 0
    assert ran.json["progress"]["total"] == 2 and ran.json["is_new"]
    assert "rubricsvc jobs wait 1`" in ran.err
    drain()
    assert ready("jobs", "show", 1, "--json").json["status"] == "completed"
    first, second = ready("jobs", "export", 1).lines
    assert (first["prompt_external_id"], first["rubric"], first["policy"]) == ("one", "first@1", "a")
    assert (first["prompt"], first["completion"]) == ("What is one?", "1")
    assert first["reward"] is not None and first["coverage"] == 1.0 and first["formula"] == "weighted_mean"
    assert [verdict["criterion"] for verdict in first["verdicts"]] == ["c1", "c2"]
    assert first["judge"] == "quick" and len(first["judge_digest"]) == 64
    out = tmp_path / "r.csv"
    assert ready("jobs", "export", 1, "--out", out, "--kind", "dpo").code == 2 and not out.exists()
    ready("jobs", "export", 1, "--out", out)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["completion_id"] for row in rows] == [str(first["completion_id"]), str(second["completion_id"])]
    assert list(json.loads(rows[0]["values"])) == ["c1", "c2"]
    verdicts = ready("verdicts", "list", "--job", 1, "--json").lines
    assert len(verdicts) == 3 and {verdict["verdict"]["outcome"] for verdict in verdicts} == {"scored"}
    assert ready("verdicts", "list", "--outcome", "failed", "--json").out == ""


def test_submit_imports_a_file(ready: Cli) -> None:
    stdin = '{"prompt": "What is one?", "text": "uno"}\n{"prompt": "What is two?", "text": "due"}\n'
    ran = ready("jobs", "submit", "-", "--judge", "quick", "--json", stdin=stdin)
    assert ran.json["progress"]["total"] == 2
    assert len(ready("completions", "list", "--json").lines) == 5
    whole = '{"name": "w", "prompt": "New?", "criteria": ["Is kind."], "completions": ["a", "b"]}\n'
    assert ready("jobs", "submit", "-", "--judge", "quick", "--json", stdin=whole).json["progress"]["total"] == 2


def test_wait_exits_with_1_on_failures(ready: Cli) -> None:
    file = Path("bad.yaml")
    file.write_text("{name: odd, prompt: What is one?, criteria: [{text: a, check: {words: {min: 1}}}]}\n")
    ready("rubrics", "import", file)
    ready("jobs", "submit", "--judge", "quick", "--rubric", "odd")
    with closing(Database(get_settings().database_url)) as db, db.write() as session:  # as if all workers had died
        assert leases.claim(session, 1, limit=5, worker="w", seconds=-1)
        assert leases.reconcile(session, max_leases=1) == 1
        leases.finish(session)
    ran = ready("jobs", "wait", 1, "--json")
    assert (ran.code, ran.json["status"]) == (1, "completed_with_failures")
    (line,) = ready("jobs", "export", 1).lines
    assert line["reward"] is None and line["state"] == "failed"


def test_wait_scores_in_this_process(ready: Cli) -> None:
    ran = ready("jobs", "submit", "--judge", "quick", "--wait", "--json")
    assert ran.code == 0
    assert (ran.json["status"], ran.json["summary"]["rewards"]) == ("completed", 2)
    assert "job 1 2/2 " in ran.err
    assert ran.json["summary"]["cached_share"] == 0.9
    assert ready("jobs", "wait", 1, "--json").json == ready("jobs", "show", 1, "--json").json


def test_wait_says_that_it_waits_for_leases_of_a_lost_worker(ready: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricsvc.cli.output.LINE_SECONDS", 0.0)
    monkeypatch.setattr("rubricsvc.cli.jobs.REMIND_SECONDS", 1.0)
    monkeypatch.setenv("RUBRICSVC_RECONCILE_SECONDS", "0.2")
    ready("jobs", "submit", "--judge", "quick")
    with closing(Database(get_settings().database_url)) as db, db.write() as session:
        assert leases.claim(session, 1, limit=1, worker="elsewhere:1:a/1:1", seconds=3)
    get_settings.cache_clear()
    ran = ready("jobs", "wait", 1, "--json")
    assert (ran.code, ran.json["progress"]["done"]) == (0, 2)
    assert "job 1 1/2 " in ran.err and "; waits for 1 leased and 0 pending items, 1 running worker\n" in ran.err
    assert " s without a verdict: is the judge up?" in ran.err


def test_compare_prints_tables_and_json(ready: Cli) -> None:
    add_judge(ready, "strict", mode="written")
    for judge in ("quick", "strict"):
        assert ready("jobs", "submit", "--judge", judge, "--wait").code == 0
    found = ready("jobs", "compare", 1, 2, "--json").json
    assert (found["differs"], found["paired"], found["a"]["judge"]) == (["judge"], 2, "quick")
    ran = ready("jobs", "compare", 1, 2)
    assert ran.code == 0 and "moved" in ran.out and "first@1, second@1" in ran.out
    ran = ready("jobs", "compare", 1, 99)
    assert (ran.code, ran.out) == (3, "")


def test_budget_stops_a_job_until_it_is_raised(ready: Cli) -> None:
    usage = {"prompt_tokens": 300, "completion_tokens": 1}  # a prompt of some 1,000 bytes
    with scripted_server(replace(labels(Yes=0.9, No=0.1), usage=usage)) as server:
        endpoint = {"base_url": server.url, "concurrency": 1, "price": {"prompt": 1000}}
        add_judge(ready, "paid", engine="openai_http", endpoint=endpoint)
        submitted = ready("jobs", "submit", "--judge", "paid", "--budget", 0.1, "--wait", "--json")
        assert (submitted.code, submitted.json["status"], submitted.json["spent"]) == (1, "budget_exhausted", 0)
        assert "rubricsvc jobs retry 1 --budget DOLLARS" in submitted.err
        shown = ready("jobs", "show", 1, "--json").json
        assert (shown["status"], shown["spent"], shown["budget"]) == ("budget_exhausted", 0, 0.1)
        assert shown["summary"]["reserved"] == {"held": 0, "lost": 0}
        refused = ready("jobs", "retry", 1, "--wait")
        assert refused.code == 2
        again = ready("jobs", "retry", 1, "--budget", 20, "--wait", "--json")
        assert (again.code, again.json["status"], round(again.json["spent"], 6)) == (0, "completed", 0.9)


def test_rescore_and_diff_use_stored_verdicts(ready: Cli, rubric_file: Path) -> None:
    ready("jobs", "submit", "--judge", "quick")
    drain()
    before = ready("jobs", "show", 1, "--json").json["summary"]["mean_reward"]
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
    assert "already" not in ran.err and "job 2 exists already" in ready("jobs", "rescore", 1).err
    assert compared.json["mean_change"] == pytest.approx(2 * (ran.json["summary"]["mean_reward"] - before))
    assert ready("jobs", "rescore", 1, "--rubric", "nonsense").code != 0
    assert "already" in ready("jobs", "rescore", 1, "--rubric", "first@1").err
    first_job, _ = ready("jobs", "list", "--json").lines
    assert (first_job["progress"]["done"], first_job["progress"]["total"]) == (2, 2)


def test_export_refuses_an_unknown_ending(ready: Cli, tmp_path: Path) -> None:
    assert ready("jobs", "submit", "--judge", "quick").code == 0
    for name in ("rewards.xlsx", "rewards.xml", "rewards.jsonl.gz"):
        ran = ready("jobs", "export", 1, "--out", tmp_path / name)
        assert ran.code == 2 and ".csv" in ran.err and not (tmp_path / name).exists()
    assert ready("jobs", "export", 1, "--out", tmp_path / name, "--format", "jsonl").code == 0
    assert len((tmp_path / name).read_text().splitlines()) == 2


def test_report_writes_one_page(ready: Cli, tmp_path: Path) -> None:
    assert ready("jobs", "submit", "--judge", "quick", "--wait").code == 0
    ran = ready("jobs", "export", 1, "--out", tmp_path / "job.html")
    page = (tmp_path / "job.html").read_text(encoding="utf-8")
    assert ran.code == 0 and ran.out == "" and str(tmp_path / "job.html") in ran.err
    assert page.startswith("<!doctype html>") and page.count("<article") == 2
    assert "<article" in ready("jobs", "export", 1, "--format", "html").out
    assert ready("jobs", "export", 9, "--out", tmp_path / "none.html").code == UNAVAILABLE
    assert not (tmp_path / "none.html").exists()


def test_cells_of_a_spreadsheet_are_no_formulas() -> None:
    row = {"policy": "=1+1", "prompt": "@SUM(A1)", "completion": "+1", "prompt_external_id": "-2", "reward": -0.5}
    verdict = {"criterion": "=c", "reason": "timeout", "contribution": None}
    file, others = StringIO(), {"verdicts": [verdict], "prompt_messages": None, "prompt_tags": ["=a", "b"]}
    write_text([_cells(row | others)], file, "csv")
    (cells,) = csv.DictReader(file.getvalue().splitlines())
    assert [cells[name] for name in row] == ["'=1+1", "'@SUM(A1)", "'+1", "'-2", "-0.5"]
    assert (cells["values"], cells["failed"], len(cells)) == ('{"=c": null}', "'=c:timeout", 11)
    assert (cells["prompt_tags"], cells["tags"]) == ("'=a;b", '{"=c": null}')


def test_export_as_parquet_has_tags_and_groups(cli: Cli, tmp_path: Path) -> None:
    record = {"prompt": "Why?", "tags": ["theme:why"], "completions": ["So.", "No."]}
    record |= {"criteria": [{"text": "Is so.", "tags": ["axis:x"]}, "Is no."]}
    assert cli("rubrics", "import", "-", stdin=json.dumps(record)).code == 0
    add_judge(cli)
    assert cli("jobs", "submit", "--judge", "quick", "--wait").code == 0
    assert cli("jobs", "export", 1, "--out", tmp_path / "job.parquet").code == 0
    rows = parquet.read_table(tmp_path / "job.parquet").to_pylist()
    assert [row["prompt_tags"] for row in rows] == [["theme:why"]] * 2
    first, second = rows[0]["verdicts"]
    assert (first["tags"], first["group"], first["value"], second["tags"]) == (["axis:x"], [], 0.9, [])
