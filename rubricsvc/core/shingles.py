"""Texts that repeat one another, by their shingles: the different runs of `WIDTH` words (Broder 1997).

Case, punctuation and line breaks do not count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

WIDTH = 5
COPY = 0.9
"""Share of the shingles of either of two texts that the other has, from which they are copies of one another."""
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


def copy_groups(texts: Sequence[str]) -> list[int]:
    """Return for each text [N] the number of the first one that it is equal to or a near copy of; else its own.

    A text is compared with those that are no copies, so that a chain of small edits is not one group.
    """
    found: list[int] = []
    firsts: dict[int, Shingles] = {}
    known: dict[str, int] = {}
    for number, text in enumerate(texts):
        if text not in known:
            own = shingles(text)
            same = (
                first
                for first, other in firsts.items()
                if min(containment(own, other), containment(other, own)) >= COPY
            )
            known[text] = next(same, number)
            if known[text] == number:
                firsts[number] = own
        found.append(known[text])
    return found
