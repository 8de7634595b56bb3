"""`rubricsvc workers`: the workers of the database. `rubricsvc worker` runs one."""

from __future__ import annotations

from rubricsvc.cli.output import Json, group, show
from rubricsvc.cli.service import local_service

app = group("Workers that run jobs; run one with `rubricsvc worker`.")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List running workers, and those that were lost within the last hour."""
    with local_service() as s:
        empty = "no workers; start one with `rubricsvc worker`, or `rubricsvc serve` on memory://"
        show(s.workers.page(), as_json, empty=empty)
