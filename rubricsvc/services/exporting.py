"""Export the results of a job, page by page: memory does not grow with the job."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from rubricsvc.store import jobs, pairs, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rubricsvc.core.verdict import Verdict
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow

RESULTS_PER_PAGE = 200
GROUPS_PER_PAGE = 100


def export_job(db: Database, job_id: int, stream: TextIO, *, as_csv: bool) -> int:
    """Write a line of JSON or CSV for each completion and rubric; return how many of them have no reward.

    A CSV has the values by criterion in one column, since rubrics differ.

    Raises:
        NotFoundError: no such job.
    """
    table: csv.DictWriter[str] | None = None
    without_reward = 0
    for line, found in _results(db, job_id):
        without_reward += line["reward"] is None
        if not as_csv:
            _write_json(stream, line | {"verdicts": [plain_verdict(verdict) for verdict in found]})
            continue
        line["values"] = json.dumps({verdict.criterion: verdict.value for verdict in found}, ensure_ascii=False)
        line["failed"] = " ".join(f"{verdict.criterion}:{verdict.reason}" for verdict in found if verdict.reason)
        if table is None:
            table = csv.DictWriter(stream, list(line), lineterminator="\n")
            table.writeheader()
        table.writerow(line)
    return without_reward


def _results(db: Database, job_id: int) -> Iterator[tuple[dict[str, Any], list[Verdict]]]:
    after = 0
    while True:
        with db.read() as session:
            job = jobs.get(session, job_id)
            rows = jobs.results(session, job_id, after=after, limit=RESULTS_PER_PAGE)
            by_item = verdicts.for_items(session, [row.id for row in rows])
            page = [(_line(job, row), by_item.get(row.id, [])) for row in rows]
        if not rows:
            return
        yield from page
        after = rows[-1].id


def _line(job: JobRow, row: ItemRow) -> dict[str, Any]:
    completion = row.completion.content
    return {
        "job_id": job.id,
        "prompt_id": row.completion.prompt_id,
        "prompt_external_id": row.completion.prompt.external_id,
        "completion_id": row.completion_id,
        "completion_external_id": completion.get("id"),
        "policy": row.completion.policy,
        "step": completion.get("step"),
        "rubric": f"{row.rubric.name}@{row.rubric.version}",
        "rubric_digest": row.rubric.digest,
        "judge": job.judge.name,
        "judge_digest": job.judge.digest,
        "state": row.state,
        "reward": row.reward,
        "coverage": row.coverage,
        "min_coverage": row.rubric.content["min_coverage"] if job.min_coverage is None else job.min_coverage,
        "formula": row.formula,
        "vetoed_by": row.vetoed_by,
        "null_reason": row.null_reason,
    }


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON data, without the fields that are not set."""
    return verdict.model_dump(mode="json", exclude_none=True, exclude=None if verdict.evidence else {"evidence"})


@dataclass
class PairCounts:
    """How many pairs were written, and left out because rewards are ``close`` or texts the ``same``."""

    written: int = 0
    close: int = 0
    same: int = 0


def export_pairs(db: Database, job_id: int, stream: TextIO, *, min_margin: float) -> PairCounts:
    """Write a JSON line for each two completions of a prompt whose rewards differ by at least ``min_margin``.

    A line has prompt, chosen and rejected as lists of messages, as TRL reads them.

    Raises:
        NotFoundError: no such job.
    """
    counts, after = PairCounts(), (0, 0)
    while True:
        with db.read() as session:
            job = jobs.get(session, job_id)
            page = pairs.groups(session, job_id, after=after, limit=GROUPS_PER_PAGE)
            for group in page:
                found = pairs.of_group(session, job, group, min_margin)
                for pair in found.preferences:
                    _write_json(stream, found.line(pair))
                counts.written += len(found.preferences)
                counts.close += found.close
                counts.same += found.same
        if not page:
            return counts
        after = page[-1]


def _write_json(stream: TextIO, line: dict[str, Any]) -> None:
    stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
