"""The sentences of a text, with their places in it."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise

Span = tuple[int, int]
"""Offsets of the first character, and after the last one."""

_BREAK = re.compile(r"(?:(?<=[.!?…])|(?<=[.!?…][\"'”’)\]]))(?<!\n\d\.)(?<!\A\d\.)[ \t]+|\s*\n\s*")


def sentence_places(text: str) -> list[Span]:
    """Return the places of the sentences, which end at ``.!?…`` before a blank, and at line breaks."""
    ends = [(0, 0), *(found.span() for found in _BREAK.finditer(text)), (len(text), len(text))]
    places = [(before[1], after[0]) for before, after in pairwise(ends)]
    return [(start, end) for start, end in places if text[start:end].strip()]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [text[start:end] for start, end in sentence_places(text)]


def without(text: str, removed: Collection[Span]) -> str:
    """Return the text without these sentences; what is between the others stays."""
    places = sentence_places(text)
    kept = [place for place in places if place not in removed]
    parts: list[str] = []
    last = None
    for start, end in kept:
        if last is not None:
            before = max(other_end for _, other_end in places if other_end <= start)
            parts.append(text[before:start])
        parts.append(text[start:end])
        last = end
    return "".join(parts)
