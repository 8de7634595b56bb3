"""Rows of a job's results, page by page: memory does not grow with the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.services import job_items
from rubricsvc.services.job_items import ItemDetail
from rubricsvc.store import jobs

if TYPE_CHECKING:
    from rubricsvc.core.contributions import Contribution
    from rubricsvc.core.verdict import Verdict
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import ItemRow, JobRow

Row = dict[str, Any]


@dataclass
class ResultCounts:
    """How many items and rows were read, and how many of the items have no reward or no verdict."""

    items: int = 0
    rows: int = 0
    without_reward: int = 0
    without_verdict: int = 0


def result_pages(db: Database, job_id: int, counts: ResultCounts, *, long: bool = False) -> Iterator[list[Row]]:
    """Yield the results of a job in pages: a row for each completion and rubric, or, if ``long``, for each verdict.

    ``counts`` counts what was yielded.

    Raises:
        NotFoundError: no such job.
    """
    with db.read() as session:
        job = jobs.scoring(session, job_id)
    to_rows = _verdict_rows if long else _item_rows
    for page in job_items.pages(db, job_id):
        rows = [one for row, detail in page for one in to_rows(_fields(job, row, detail), detail)]
        counts.items += len(page)
        counts.rows += len(rows)
        counts.without_reward += sum(detail.reward is None for _, detail in page)
        counts.without_verdict += sum(all(part.verdict is None for part in detail.parts) for _, detail in page)
        yield rows


def _fields(job: JobRow, row: ItemRow, detail: ItemDetail) -> Row:
    return {
        "job_id": job.id,
        "prompt_id": row.completion.prompt_id,
        "prompt_external_id": row.completion.prompt.external_id,
        "completion_id": row.completion_id,
        "completion_external_id": detail.completion.id,
        "policy": row.completion.policy,
        "step": detail.completion.step,
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
        "prompt": detail.prompt.text,
        "completion": detail.completion.text,
    }


def _item_rows(fields: Row, detail: ItemDetail) -> Iterator[Row]:
    """Yield the one row of an item: its texts, its messages where they are more than a text, and its verdicts."""
    messages = detail.prompt.messages
    several = len(messages) > 1 or messages[0].role != "user"
    yield fields | {
        "prompt_messages": [message.openai for message in messages] if several else None,
        "completion_messages": [message.openai for message in detail.completion.messages] or None,
        "verdicts": [
            {**_criterion(part, "text"), **plain_verdict(part.verdict), **_share(part)}
            for part in detail.parts
            if part.verdict is not None
        ],
    }


def _verdict_rows(fields: Row, detail: ItemDetail) -> Iterator[Row]:
    for part in detail.parts:
        if part.verdict is not None:
            yield {**fields, **_criterion(part, "criterion_text"), **plain_verdict(part.verdict), **_share(part)}


def _criterion(part: Contribution, text: str) -> Row:
    one = part.criterion
    return {"criterion": one.key, text: one.text, "weight": one.weight, "kind": one.kind}


def _share(part: Contribution) -> Row:
    return {"contribution": part.contribution, "gain": part.gain}


def plain_verdict(verdict: Verdict) -> Row:
    """Return a verdict as JSON data, without the fields that are not set."""
    return verdict.model_dump(mode="json", exclude_none=True, exclude=None if verdict.evidence else {"evidence"})
