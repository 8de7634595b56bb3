"""Files of results."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import NotFoundError
from rubricsvc.schemas.jobs import ExportCounts, ExportQuery
from rubricsvc.services import exporting, job_results
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from tests.rows import RUBRIC, item_result, submit_job


@pytest.fixture(params=[1, 100])
def job(db: Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """A job over four completions: rewards 0, 0.5 and 0.5, and a failed one. Read in pages of one, and in one page."""
    monkeypatch.setattr(job_results, "ITEMS_PER_PAGE", request.param)
    job_id = submit_job(db, 4, judge=Judge(name="test", model="m"))
    with db.write() as session:
        claimed = leases.claim(session, 1, limit=4, worker="w", seconds=60)
        for lease, value in zip(claimed, (0.0, 0.5, 0.5, None), strict=True):
            verdicts = [
                Verdict.failed(criterion.key, "timeout") if value is None else Verdict.scored(criterion.key, value)
                for criterion in RUBRIC.criteria
            ]
            leases.record(session, [item_result(lease, RUBRIC, verdicts)])
    return job_id


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def pages(db: Database, job: int) -> Iterator[list[dict[str, Any]]]:
    return exporting.pages(db, job, ExportQuery(), ExportCounts())


def test_result_pages_have_texts_and_contributions(db: Database, job: int) -> None:
    counts = ExportCounts()
    rows = [row for page in exporting.pages(db, job, ExportQuery(), counts) for row in page]
    assert counts == ExportCounts(items=4, rows=4, without_reward=1)
    assert [row["reward"] for row in rows] == [0.0, 0.5, 0.5, None]
    assert [row["completion_id"] for row in rows] == [1, 2, 3, 4]
    assert {(row["rubric"], row["judge"], row["prompt"]) for row in rows} == {("test@1", "test", "What is a rubric?")}
    assert rows[1]["completion"] == "answer 1" and rows[1]["completion_messages"] is None
    verdicts = rows[1]["verdicts"]
    assert [(one["criterion"], one["text"], one["weight"], one["kind"]) for one in verdicts] == [
        (f"c{n}", f"Says thing number {n}.", n, "judged") for n in (1, 2, 3)
    ]
    assert sum(one["contribution"] for one in verdicts) == pytest.approx(0.5)
    assert [one["gain"] for one in verdicts] == pytest.approx([1 / 12, 2 / 12, 3 / 12])
    assert rows[3]["verdicts"][0]["contribution"] is None


def test_write_csv_neutralizes_text_but_no_numbers(stream: io.StringIO) -> None:
    row = {"policy": "=1+1", "prompt": "@SUM(A1)", "completion": "+1", "prompt_external_id": "-2", "reward": -0.5}
    verdict = {"criterion": "=c", "reason": "timeout", "contribution": None}
    exporting.write_lines([[row | {"verdicts": [verdict]}]], stream, "csv")
    (read,) = csv.DictReader(io.StringIO(stream.getvalue()))
    assert {name: read[name] for name in row} == {
        "policy": "'=1+1",
        "prompt": "'@SUM(A1)",
        "completion": "'+1",
        "prompt_external_id": "'-2",
        "reward": "-0.5",
    }
    assert read["failed"] == "'=c:timeout"


def test_export_rejects_unknown_job(db: Database) -> None:
    with pytest.raises(NotFoundError):
        list(pages(db, 7))
