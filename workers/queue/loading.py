"""The kinds of work: how each is loaded and recorded."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.settings import Settings
from rubricsvc.store import generation, leases
from rubricsvc.store.generation import GeneratedItem
from rubricsvc.store.leases import GenerationLease, ItemResult, Lease, Recorded, ScoringLease
from rubricsvc.store.session import Database
from workers.queue.generating import GenerationLoader
from workers.queue.item_work import ItemWork, Result
from workers.queue.scoring import ScoringLoader


class WorkLoaders:
    """The loaders of all kinds of work, and where their results are recorded."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._scoring = ScoringLoader(db)
        self._generation = GenerationLoader(settings.require_approval, settings.collections_dir)

    def load(self, session: Session, judge: Judge, taken: Sequence[Lease]) -> list[ItemWork]:
        """Return the work of the leases. One that cannot be read fails at once."""
        scoring = [lease for lease in taken if isinstance(lease, ScoringLease)]
        generating = [lease for lease in taken if isinstance(lease, GenerationLease)]
        return [
            *(self._scoring.load(session, judge, scoring) if scoring else ()),
            *(self._generation.load(session, judge, generating) if generating else ()),
        ]

    def record(self, session: Session, results: Sequence[Result]) -> Recorded:
        """Record results of any kinds, of the items whose leases are valid."""
        scored = leases.record(session, [one for one in results if isinstance(one, ItemResult)])
        made = generation.record(session, [one for one in results if isinstance(one, GeneratedItem)])
        return Recorded(scored.items + made.items, scored.repaired_jobs | made.repaired_jobs)
