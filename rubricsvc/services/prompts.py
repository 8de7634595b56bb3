"""`Prompts`: what the policy is asked."""

from __future__ import annotations

from rubricsvc.queries import Paging
from rubricsvc.schemas import NewPrompt, Page, StoredPrompt
from rubricsvc.schemas.methods import takes
from rubricsvc.store import prompts
from rubricsvc.store.session import Database


class Prompts:
    """Prompts, by id or external id."""

    def __init__(self, db: Database) -> None:
        self.db = db

    @takes(NewPrompt)
    def add(self, new: NewPrompt) -> StoredPrompt:
        """Store a prompt. Identical content is stored once."""
        with self.db.write() as session:
            return StoredPrompt.of(prompts.add(session, new.prompt, new.external_id))

    @takes(Paging)
    def page(self, query: Paging) -> Page[StoredPrompt]:
        """List prompts, oldest first."""
        with self.db.read() as session:
            rows = prompts.page(session, after=query.after, limit=query.limit + 1)
            return Page.cut([StoredPrompt.of(row) for row in rows], query.limit)

    def get(self, ref: int | str) -> StoredPrompt:
        """Get a prompt by id or external id."""
        with self.db.read() as session:
            return StoredPrompt.of(prompts.get(session, ref))
