"""Pages that repeat another page: chapters and their sections, single-page versions, mirrors.

Two pages are near copies if one has `THRESHOLD` of the other's shingles, the different runs of `WIDTH` words
(containment, Broder 1997), wherever in the page they are. Case, punctuation and line breaks do not count.
"""

from __future__ import annotations

import re
from array import array

from rubricsvc.collections.index import Collection

WIDTH = 5
THRESHOLD = 0.6
_WORD = re.compile(r"\w+")

Shingles = frozenset[int]
"""The different shingles of a text, as numbers that are equal in this process only."""


def shingles(text: str) -> Shingles:
    """Return the shingles of a text; the whole text is one if it has fewer words."""
    words = _WORD.findall(text.casefold())
    width = min(WIDTH, len(words))
    return frozenset(map(hash, zip(*(words[place:] for place in range(width)), strict=False)))


def containment(part: Shingles, whole: Shingles) -> float:
    """Return the share of the shingles of one text that another has; 0 where there are none."""
    return len(part & whole) / len(part) if part else 0.0


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
