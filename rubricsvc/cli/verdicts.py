"""`rubricsvc verdicts`: verdicts of judges, by criterion."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import After, Json, Limit, fields_of, group, show_page
from rubricsvc.core.states import Outcome
from rubricsvc.core.verdict import Verdict
from rubricsvc.services.exporting import plain_verdict
from rubricsvc.store import jobs, verdicts
from rubricsvc.store.tables import VerdictRow

app = group("Verdicts of judges, by criterion.")


def reason_of(verdict: Verdict) -> str:
    """Return the failure or the rationale of a verdict, with its detail and the number of quotes not found."""
    if verdict.outcome == "failed":
        text = verdict.detail or ""
    else:
        text = " ".join(filter(None, (f"[{verdict.detail}]" if verdict.detail else "", verdict.rationale)))
    reason = f"{verdict.reason}: " if verdict.reason and text else verdict.reason or ""
    missing = sum(quote.start is None for quote in verdict.evidence)
    mark = f"[{missing} of {len(verdict.evidence)} quotes not in the completion] " if missing else ""
    return mark + reason + text


@app.command("list")
def list_(
    *,
    job: Annotated[int | None, typer.Option(help="Filter by job.")] = None,
    completion: Annotated[int | None, typer.Option(help="Filter by completion.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Filter by outcome.")] = None,
    limit: Limit = 100,
    after: After = 0,
    as_json: Json = False,
) -> None:
    """List verdicts."""
    with database() as db, db.read() as session:
        if job is not None:
            jobs.get(session, job)
        where: dict[str, Any] = {"job_id": job, "completion_id": completion, "outcome": outcome, "after": after}
        rows = verdicts.page(session, **where, limit=limit + 1)
        show_page(rows, lambda row: _row(row, as_json), limit, as_json, empty="no verdicts")


def _row(row: VerdictRow, as_json: bool) -> dict[str, Any]:
    ids = fields_of(row, "id", "completion_id", "rubric_id", "judge_id")
    if as_json:
        return ids | {"verdict": plain_verdict(row.verdict)}
    value = row.value if row.value is not None else row.outcome
    return ids | {"criterion": row.criterion, "value": value, "reason": reason_of(row.verdict)}
