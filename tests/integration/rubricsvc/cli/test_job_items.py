"""`rubricsvc jobs items` and `jobs report`: what each completion got, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rubricsvc.cli.output import UNAVAILABLE
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs, leases
from rubricsvc.store.migrate import open_database
from tests.cli import Cli, add_judge
from tests.rows import item_result

RUBRIC = {
    "name": "dose",
    "prompt": "What is the dose?",
    "criteria": [
        {"key": "dose", "text": "States the dose.", "weight": 3},
        {"key": "source", "text": "Names a source.", "weight": 1, "required": True},
    ],
}
VALUES = {"good": (1.0, 1.0), "half": (0.5, 1.0), "vetoed": (1.0, 0.0), "silent": (None, 1.0)}


@pytest.fixture
def job(cli: Cli) -> Cli:
    """A job over four completions: rewards 1, 0.625 and 0 (vetoed), and one without."""
    assert cli("rubrics", "import", "-", stdin=json.dumps(RUBRIC)).code == 0
    lines = [{"prompt": "What is the dose?", "text": t, "policy": t[0], "id": f"own-{t}"} for t in VALUES]
    assert cli("completions", "import", "-", stdin="\n".join(map(json.dumps, lines))).code == 0
    add_judge(cli)
    assert cli("jobs", "submit", "--judge", "quick").code == 0
    rubric = Rubric.model_validate({"criteria": RUBRIC["criteria"]})
    db = open_database(get_settings().database_url)
    with db.write() as session:
        for lease, values in zip(
            leases.claim(session, 1, limit=9, worker="w", seconds=60), VALUES.values(), strict=True
        ):
            verdicts = [
                Verdict.failed(key, "timeout") if value is None else Verdict.scored(key, value)
                for key, value in zip(rubric.by_key, values, strict=True)
            ]
            leases.record(session, [item_result(lease, rubric, verdicts)])
        jobs.finish(session)
    db.close()
    return cli


def test_report_writes_one_page(job: Cli, tmp_path: Path) -> None:
    ran = job("jobs", "report", 1, "--out", tmp_path / "job.html")
    page = (tmp_path / "job.html").read_text(encoding="utf-8")
    assert ran.code == 0 and ran.out == "" and str(tmp_path / "job.html") in ran.err
    assert page.startswith("<!doctype html>") and page.count("<article") == 4
    assert job("jobs", "report", 1, "--completions", 1).out.count("<article") == 3
    assert job("jobs", "report", 9, "--out", tmp_path / "none.html").code == UNAVAILABLE
    assert not (tmp_path / "none.html").exists()
