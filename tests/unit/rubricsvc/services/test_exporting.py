"""Lines of results and of preference pairs."""

from __future__ import annotations

import csv
import io
import json

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import NotFoundError
from rubricsvc.services import exporting
from rubricsvc.services.exporting import PairCounts, export_job, export_pairs
from rubricsvc.store import leases
from rubricsvc.store.session import Database
from tests.rows import RUBRIC, item_result, submit_job


@pytest.fixture(params=[1, 100])
def job(db: Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """A job over four completions: rewards 0, 0.5 and 0.5, and a failed one. Read in pages of one, and in one page."""
    monkeypatch.setattr(exporting, "RESULTS_PER_PAGE", request.param)
    monkeypatch.setattr(exporting, "GROUPS_PER_PAGE", request.param)
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


def test_export_job_writes_json_lines(db: Database, job: int, stream: io.StringIO) -> None:
    assert export_job(db, job, stream, as_csv=False) == 1
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["reward"] for line in lines] == [0.0, 0.5, 0.5, None]
    assert [line["completion_id"] for line in lines] == [1, 2, 3, 4]
    assert {(line["rubric"], line["judge"], line["prompt_id"]) for line in lines} == {("test@1", "test", 1)}
    assert [verdict["criterion"] for verdict in lines[0]["verdicts"]] == ["c1", "c2", "c3"]


def test_export_job_writes_csv_with_one_header(db: Database, job: int, stream: io.StringIO) -> None:
    assert export_job(db, job, stream, as_csv=True) == 1
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert [row["reward"] for row in rows] == ["0.0", "0.5", "0.5", ""]
    assert json.loads(rows[1]["values"]) == {"c1": 0.5, "c2": 0.5, "c3": 0.5}
    assert rows[3]["failed"] == "c1:timeout c2:timeout c3:timeout"


def test_export_pairs_leaves_out_ties(db: Database, job: int, stream: io.StringIO) -> None:
    assert export_pairs(db, job, stream, min_margin=0.1) == PairCounts(written=2, close=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {(line["chosen_completion_id"], line["rejected_completion_id"]) for line in lines} == {(2, 1), (3, 1)}


def test_export_rejects_unknown_job(db: Database) -> None:
    with pytest.raises(NotFoundError):
        export_job(db, 7, io.StringIO(), as_csv=False)
    with pytest.raises(NotFoundError):
        export_pairs(db, 7, io.StringIO(), min_margin=0.0)
