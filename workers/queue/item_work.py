"""The work on a leased item. To add a kind of items, write its work and its loader, and name them in `loading`."""

from __future__ import annotations

from typing import Protocol

from rubricsvc.store.generation import GeneratedItem
from rubricsvc.store.leases import ItemResult, Lease
from workers.queue.costs import Write
from workers.queue.engine_pool import DrainEngines

Result = ItemResult | GeneratedItem
"""What the work on an item returns; `loading.WorkLoaders` has the function that records it."""


class ItemWork(Protocol):
    """What a lease is about, loaded in the transaction that claims it."""

    @property
    def lease(self) -> Lease:
        """The lease of the item."""

    @property
    def priced(self) -> bool:
        """Whether its calls have a price."""

    async def run(self, engines: DrainEngines, write: Write, /) -> Result:
        """Do the work. An error of a model is a result too."""
