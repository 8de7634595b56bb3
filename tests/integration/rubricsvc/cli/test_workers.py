"""`rubricsvc workers list`, with a worker in this process."""

from __future__ import annotations

from pathlib import Path

from rubricsvc.services.jobs import Jobs
from rubricsvc.settings import get_settings
from rubricsvc.store.session import Database
from tests.cli import Cli, add_judge
from tests.rows import invalidate
from workers.queue.in_process import embedded_worker

NO_WORKER = "No worker is running"


def test_workers_list_and_submit_see_an_embedded_worker(cli: Cli, rubric_file: Path) -> None:
    add_judge(cli)
    cli("rubrics", "import", rubric_file)
    cli("completions", "import", "-", stdin='{"prompt": "What is one?", "text": "1"}\n')
    none = cli("workers", "list")
    assert (none.code, none.out) == (0, "") and "`rubricsvc worker`" in none.err
    settings = get_settings()
    db = Database(settings.database_url)
    with embedded_worker(settings, db):
        (row,) = cli("workers", "list", "--json").lines
        assert (row["status"], row["name"].split(":")[:2]) == ("running", [row["host"], str(row["pid"])])
        assert row["name"] in cli("workers", "list").out
        assert NO_WORKER not in cli("jobs", "submit", "--judge", "quick").err
    db.close()
    assert cli("workers", "list", "--json").out == ""
    assert NO_WORKER in cli("jobs", "submit", "--judge", "quick", "--key", "again").err


def test_worker_ends_a_job_whose_judge_is_not_valid_any_more(cli: Cli, rubric_file: Path) -> None:
    add_judge(cli, endpoint={"concurrency": 2})
    cli("rubrics", "import", rubric_file)
    cli("completions", "import", "-", stdin='{"prompt": "What is one?", "text": "1"}\n')
    cli("jobs", "submit", "--judge", "quick")
    settings = get_settings()
    db = Database(settings.database_url)
    invalidate(db, "quick", base_url="http://user:secret@host/v1")
    with embedded_worker(settings, db):
        Jobs(db).wait(1)
    db.close()
    shown = cli("jobs", "show", "1", "--json")
    assert (shown.code, shown.json["status"], shown.json["progress"]["failed"]) == (0, "completed_with_failures", 1)
    assert "judges update quick" in shown.err and "secret" not in shown.err
    (item,) = cli("jobs", "items", "1", "--json").lines
    assert "judges update quick" in item["null_reason"]
