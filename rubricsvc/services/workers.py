"""`Workers`: the workers that report in the database, and what waits for them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rubricsvc.schemas.base import StoredWorker
from rubricsvc.store import leases
from rubricsvc.store.leases import Queue
from rubricsvc.store.session import Database


@dataclass(eq=False)
class Workers:
    """Workers, by the clock of the database."""

    db: Database

    def page(self) -> list[StoredWorker]:
        """List running workers and those that were lost within the last hour, in the order in which they started."""
        with self.db.read() as session:
            found = leases.list_workers(session)
        now = datetime.now(UTC).replace(microsecond=0)
        return [
            StoredWorker.of(
                row,
                status="running" if seen <= leases.REPORT_SECONDS * leases.MISSED_REPORTS else "lost",
                since=now - timedelta(seconds=round(seen + row.seen_at - row.started_at)),
                last_seen=round(seen, 1),
            )
            for row, seen in found
        ]

    def queue(self) -> Queue:
        """Count open items, unsent messages and running workers."""
        with self.db.read() as session:
            return leases.queue(session)
