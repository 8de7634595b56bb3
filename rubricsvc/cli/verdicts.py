"""`rubricsvc verdicts`: verdicts of judges, by criterion."""

from __future__ import annotations

from typing import Annotated

import typer

from rubricsvc.cli.options import command
from rubricsvc.cli.output import Json, group, show
from rubricsvc.cli.service import service
from rubricsvc.core.verdict import Verdict
from rubricsvc.queries import VerdictFilters

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


@command(app, "list")
def list_(
    query: VerdictFilters,
    job_id: Annotated[int | None, typer.Option("--job", help="Filter by job.")] = None,
    completion_id: Annotated[int | None, typer.Option("--completion", help="Filter by completion.")] = None,
    as_json: Json = False,
) -> None:
    """List verdicts."""
    ids = ("id", "completion_id", "rubric_id", "judge_id")
    found = ("verdict.criterion", "verdict.outcome", "verdict.value", "verdict.reason", "verdict.rationale")
    with service() as s:
        show(s.verdicts.page(query), as_json, columns=(*ids, *found), empty="no verdicts")
