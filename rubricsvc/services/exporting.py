"""Export the results of a job: each reward with its verdicts and where it comes from."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from rubricsvc.store import jobs, prompts, verdicts

if TYPE_CHECKING:
    from rubricsvc.core.verdict import Verdict
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow

PAGE = 200


def export_job(db: Database, job_id: int, stream: TextIO, *, as_csv: bool) -> int:
    """Write a line of JSON or CSV for each completion and rubric; return how many of them have no reward.

    Raises:
        NotFoundError: no such job.
    """
    write = _writer(stream, as_csv=as_csv)
    external_ids: dict[int, str | None] = {}
    without_reward = after = 0
    while True:
        with db.read() as session:  # one page each, so that memory does not grow with the job
            job = jobs.get(session, job_id)
            rows = jobs.results(session, job_id, after=after, limit=PAGE)
            by_item = verdicts.for_items(session, [row.id for row in rows])
            for row in rows:
                prompt_id = row.completion.prompt_id
                if prompt_id not in external_ids:
                    external_ids[prompt_id] = prompts.get(session, prompt_id).external_id
                without_reward += row.reward is None
                write(_line(job, row, external_ids[prompt_id]), by_item.get(row.id, []))
        if not rows:
            return without_reward
        after = rows[-1].id


def _line(job: JobRow, row: ItemRow, prompt_external_id: str | None) -> dict[str, Any]:
    completion = row.completion.content
    return {
        "job_id": job.id,
        "prompt_id": row.completion.prompt_id,
        "prompt_external_id": prompt_external_id,
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
        "formula": row.formula,
        "vetoed_by": row.vetoed_by,
        "null_reason": row.null_reason,
    }


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON data, without the fields that are not set."""
    return verdict.model_dump(mode="json", exclude_none=True, exclude=None if verdict.evidence else {"evidence"})


def _writer(stream: TextIO, *, as_csv: bool) -> Callable[[dict[str, Any], list[Verdict]], None]:
    """Return the function that writes a line. In CSV the values by criterion are one column: rubrics differ."""
    table: csv.DictWriter[str] | None = None

    def write_json(line: dict[str, Any], verdicts: list[Verdict]) -> None:
        line["verdicts"] = [plain_verdict(verdict) for verdict in verdicts]
        stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")

    def write_csv(line: dict[str, Any], verdicts: list[Verdict]) -> None:
        nonlocal table
        line["values"] = json.dumps({verdict.criterion: verdict.value for verdict in verdicts}, ensure_ascii=False)
        line["failed"] = " ".join(f"{verdict.criterion}:{verdict.reason}" for verdict in verdicts if verdict.reason)
        if table is None:
            table = csv.DictWriter(stream, list(line), lineterminator="\n")
            table.writeheader()
        table.writerow(line)

    return write_csv if as_csv else write_json
