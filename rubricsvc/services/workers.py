"""`Workers`: the workers that report in the database, and what waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rubricsvc.schemas.workers import StoredWorker
from rubricsvc.store import leases

if TYPE_CHECKING:
    from rubricsvc.store.leases import Queue
    from rubricsvc.store.session import Database


@dataclass(eq=False)
class Workers:
    """Workers, by the clock of the database."""

    db: Database

    def page(self) -> list[StoredWorker]:
        """List running workers and those that were lost within the last hour, in the order in which they started."""
        with self.db.read() as session:
            rows = leases.list_workers(session)
        now = datetime.now(UTC).replace(microsecond=0)
        return [
            StoredWorker.of(
                row,
                status="running" if row.running else "lost",
                since=now - timedelta(seconds=round(row.started)),
                last_seen=round(row.seen, 1),
            )
            for row in rows
        ]

    def queue(self) -> Queue:
        """Count open items, unsent messages and running workers."""
        with self.db.read() as session:
            return leases.queue(session)
