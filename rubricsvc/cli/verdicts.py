"""`rubricsvc verdicts`: verdicts of judges, by criterion."""

from __future__ import annotations

from rubricsvc.cli.options import command
from rubricsvc.cli.output import Json, group, show
from rubricsvc.cli.service import service
from rubricsvc.queries import VerdictFilters

app = group("Verdicts of judges, by criterion.")


@command(app, "list")
def list_(query: VerdictFilters, as_json: Json = False) -> None:
    """List verdicts."""
    ids = ("id", "completion_id", "rubric_id", "judge_id")
    found = ("verdict.criterion", "verdict.outcome", "verdict.value", "verdict.reason", "verdict.rationale")
    with service() as s:
        show(s.verdicts.page(query), as_json, columns=(*ids, *found), empty="no verdicts")
