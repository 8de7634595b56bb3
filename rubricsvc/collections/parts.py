"""The parts of a document: its text, split verbatim, so that the parts joined are the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

PART_CHARS = 1000
"""Paragraphs are joined until a part has this length."""
MAX_PART_CHARS = 3000
"""A longer paragraph is split after a sentence, a line or a word."""

_BREAK = re.compile(r"\n[ \t\r]*\n\s*")
_HEADING = re.compile(r"#{1,6} |[^\n]{1,200}\n([*=~^#-])\1{2,}[ \t]*$", re.MULTILINE)


def split(text: str) -> Iterator[str]:
    """Yield the parts of a text, in order. A heading begins a part."""
    pending = ""
    for piece in _pieces(text):
        if pending and (len(pending) + len(piece) > PART_CHARS or _HEADING.match(piece)):
            yield pending
            pending = ""
        pending += piece
    if pending:
        yield pending


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for end in [*(match.end() for match in _BREAK.finditer(text)), len(text)]:
        while end - start > MAX_PART_CHARS:
            cut = _cut(text, start + PART_CHARS, start + MAX_PART_CHARS)
            yield text[start:cut]
            start = cut
        if end > start:
            yield text[start:end]
        start = end


def _cut(text: str, low: int, high: int) -> int:
    """Return where to cut between two places: after a sentence, a line or a word, or anywhere."""
    for mark in (". ", "\n", " "):
        if (at := text.rfind(mark, low, high)) >= 0:
            return at + len(mark)
    return high
