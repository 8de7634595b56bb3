"""`rubricsvc workers`: the workers of the database. `rubricsvc worker` runs one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rubricsvc.cli.db import database
from rubricsvc.cli.output import Json, fields_of, group, show_list
from rubricsvc.store import workers

app = group("Workers that run jobs; run one with `rubricsvc worker`.")


@app.callback()
def _workers() -> None:
    """Keep `list` a command of its own."""


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List running workers, and those that were lost within the last hour."""
    with database() as db, db.read() as session:
        found = workers.page(session)
    rows = [
        fields_of(worker, "name", "host", "pid")
        | {"status": "running" if worker.running else "lost", "last_seen": round(worker.seen, 1)}
        | {"since": (datetime.now(UTC) - timedelta(seconds=worker.started)).isoformat(timespec="seconds")}
        for worker in found
    ]
    show_list(rows, as_json, empty="no workers; start one with `rubricsvc worker`, or `rubricsvc serve` on memory://")
