"""`Keys`: API keys of the service."""

from dataclasses import dataclass
from datetime import timedelta

from rubricsvc.queries import Paging
from rubricsvc.schemas.base import Page, StoredKey, takes
from rubricsvc.store import keys
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import KeyRow


@dataclass(eq=False)
class Keys:
    """API keys. Only the SHA-256 of a secret is stored."""

    db: Database

    def create(self, name: str, expires_in: timedelta | None = None) -> tuple[StoredKey, str]:
        """Create a key; return it with its secret, which is not stored."""
        with self.db.write() as session:
            row, secret = keys.create(session, name, expires_in)
            return StoredKey.of(row), secret

    @takes(Paging)
    def page(self, query: Paging) -> Page[StoredKey]:
        """List keys, oldest first."""
        with self.db.read() as session:
            rows = page_of(session, KeyRow, query.after, query.limit + 1)
            return Page.cut([StoredKey.of(row) for row in rows], query.limit)

    def revoke(self, key_id: int) -> StoredKey:
        """Revoke a key, effective immediately; NotFoundError if there is none of this id."""
        with self.db.write() as session:
            return StoredKey.of(keys.revoke(session, key_id))
