"""Fences around untrusted text, and the quotes that are found in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate, chain, count

from rubricsvc.core.untrusted import INVISIBLE
from rubricsvc.core.verdict import Evidence


def fence(name: str, text: str) -> str:
    """Return ``text`` between two marks with a number that is derived from it and does not occur in it.

    The number depends on this text alone, so that all questions about a completion, and all completions of a prompt,
    share the same bytes. A writer cannot know it, since writing it down would change it.
    """
    seeds = chain([text], (f"{attempt}\n{text}" for attempt in count(1)))
    number = next(number for seed in seeds if (number := sha256(seed.encode()).hexdigest()[:8]) not in text)
    return f"<{name}-{number}>\n{text}\n</{name}-{number}>"


def fence_in(mark: str, text: str) -> str:
    """Return ``text`` between two marks, each longer than any run of the mark's character in it, as in CommonMark.

    A mark of one character repeated: two or three tokens instead of twenty, and the same ones around most texts.
    """
    longest = max(map(len, re.findall(f"{re.escape(mark[0])}+", text)), default=0)
    mark = mark[0] * max(len(mark), longest + 1)
    return f"{mark}\n{text}\n{mark}"


def fence_all(name: str, texts: Sequence[str]) -> list[str]:
    """Return the texts, each fenced as by `fence`, so that none contains a mark of any other.

    The numbers are derived from all texts in any order: the writer of one cannot know the marks.
    """
    everything = "\n".join(sorted(texts))
    for attempt in count():
        seeds = [f"{place} {attempt}\n{everything}" for place in range(len(texts))]
        numbers = [sha256(seed.encode()).hexdigest()[:8] for seed in seeds]
        if len(set(numbers)) == len(texts) and not any(number in everything for number in numbers):
            break
    marked = zip(numbers, texts, strict=True)
    return [f"<{name}-{number}>\n{text}\n</{name}-{number}>" for number, text in marked]


class QuoteIndex:
    """A text in which quotes are located, ignoring whitespace; each quote is one search.

    ``shown`` is the cleaned text; offsets are in ``original``.
    """

    def __init__(self, shown: str, original: str) -> None:
        words = [word.span() for word in re.finditer(r"\S+", shown)]
        self._text = " ".join(shown[start:end] for start, end in words)
        self._starts = [start for start, _ in words]  # of each word in shown, and in the joined text
        self._joined = list(accumulate((end - start + 1 for start, end in words), initial=0))
        # the number of shown characters before each hidden one
        self._hidden = [match.start() - i for i, match in enumerate(INVISIBLE.finditer(original))]

    def locate(self, quote: str) -> Evidence:
        """Return the quote with the offsets of its first occurrence, if any."""
        words = " ".join(quote.split())
        at = self._text.find(words) if words else -1
        if at < 0:
            return Evidence(quote=quote)
        ends = []
        for place in (at, at + len(words) - 1):  # of the first and the last character
            word = bisect_right(self._joined, place) - 1
            shown = self._starts[word] + place - self._joined[word]
            ends.append(shown + bisect_right(self._hidden, shown))
        return Evidence(quote=quote, start=ends[0], end=ends[1] + 1)
