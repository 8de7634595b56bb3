"""`rubricsvc workers`: the workers of the database. `rubricsvc worker` runs one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rubricsvc.cli.db import database
from rubricsvc.cli.output import Json, group, show_list
from rubricsvc.store import workers
from rubricsvc.store.workers import Worker

app = group("Workers that run jobs; run one with `rubricsvc worker`.")


@app.callback()
def _workers() -> None:
    """Keep `list` a command of its own."""


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List running workers, and those that were lost within the last hour."""
    with database() as db, db.read() as session:
        rows = [_row(worker, as_json) for worker in workers.page(session)]
    show_list(rows, as_json, empty="no workers; start one with `rubricsvc worker`, or `rubricsvc serve` on memory://")


def _row(worker: Worker, as_json: bool) -> dict[str, Any]:
    since = datetime.now(UTC) - timedelta(seconds=worker.started)
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "status": "running" if worker.running else "lost",
        "since": since.isoformat(timespec="seconds") if as_json else f"{since:%Y-%m-%d %H:%M}",
        "last_seen": round(worker.seen, 1) if as_json else f"{worker.seen:.0f} s ago",
    }
