"""Quotes of a judge, marked in the text that they quote."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from rubricsvc.core.verdict import Evidence


class QuoteSpan(NamedTuple):
    """A quoted part of a text, and the number of the criterion that it is evidence for."""

    start: int
    end: int
    number: int


class Segment(NamedTuple):
    """A part of a text that the same quotes cover; ``ends`` are the criteria whose quote ends with it."""

    text: str
    numbers: tuple[int, ...]
    ends: tuple[int, ...]


def locate(text: str, quote: Evidence, *, is_original: bool) -> tuple[int, int] | None:
    """Return where ``text`` has the quote; None if it does not.

    The offsets of a quote count in the completion's text, the ``original``; elsewhere the quote is searched, ignoring
    white space.
    """
    if quote.start is None or quote.end is None:
        return None
    if is_original:
        return (quote.start, quote.end) if 0 <= quote.start < quote.end <= len(text) else None
    found = re.search(r"\s+".join(map(re.escape, quote.quote.split())), text) if quote.quote.split() else None
    return found.span() if found else None


def segments(text: str, spans: Iterable[QuoteSpan]) -> list[Segment]:
    """Split a text where a quote begins or ends, so that overlapping quotes are nested nowhere."""
    inside = (one for one in spans if one.start < len(text) and one.end > 0)
    spans = [QuoteSpan(max(one.start, 0), min(one.end, len(text)), one.number) for one in inside]
    cuts = sorted({0, len(text), *(edge for one in spans for edge in one[:2])})
    opening: dict[int, list[QuoteSpan]] = {}
    for span in spans:
        opening.setdefault(span.start, []).append(span)
    found: list[Segment] = []
    covering: list[QuoteSpan] = []
    for start, end in pairwise(cuts):
        covering = [one for one in (*covering, *opening.get(start, ())) if one.end > start]
        numbers = tuple(sorted({one.number for one in covering}))
        ends = tuple(sorted({one.number for one in covering if one.end == end}))
        found.append(Segment(text[start:end], numbers, ends))
    return found
