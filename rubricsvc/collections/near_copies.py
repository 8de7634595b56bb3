"""Pages that repeat another page: chapters and their sections, single-page versions, mirrors.

Two pages are near copies if one has `THRESHOLD` of the other's shingles (`core.shingles`), wherever in the page they
are.
"""

from __future__ import annotations

from array import array

from rubricsvc.collections.index import Collection
from rubricsvc.core.shingles import Shingles, shingles

THRESHOLD = 0.6


class NearCopies:
    """The near copies of the pages of a collection, whose shingles are computed once."""

    def __init__(self, collection: Collection) -> None:
        self._shingles = {page.id: array("q", shingles(page.text)) for page in collection.pages()}
        self._known: dict[str, frozenset[str]] = {}

    def of(self, id_: str) -> frozenset[str]:
        """Return the ids of the other pages that have most of a page, or of which it has most."""
        if id_ not in self._known:
            page = frozenset(self._shingles.get(id_, ()))
            self._known[id_] = frozenset(
                other
                for other, found in self._shingles.items()
                if other != id_ and len(page.intersection(found)) >= max(1.0, THRESHOLD * min(len(page), len(found)))
            )
        return self._known[id_]

    def count(self, part: Shingles) -> int:
        """Return how many pages have most of a text."""
        least = max(1.0, THRESHOLD * len(part))
        return sum(len(part.intersection(found)) >= least for found in self._shingles.values())
