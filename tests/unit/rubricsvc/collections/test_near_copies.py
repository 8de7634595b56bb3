"""Near copies: pages that have most of another page."""

from __future__ import annotations

from pathlib import Path

from rubricsvc.collections import index as collections
from rubricsvc.collections.index import FaultyDocuments, NearCopies, Page
from rubricsvc.core.fingerprint import shingles

WORDS = [f"word{number}" for number in range(200)]
SECTION, REST = " ".join(WORDS[:60]), " ".join(WORDS[60:])


def test_near_copies_have_most_of_a_page_or_are_mostly_in_it(tmp_path: Path) -> None:
    pages = [
        Page("section", "Section", SECTION),
        Page("chapter", "Chapter", f"Before. {SECTION.upper()}! {REST}"),
        Page("quoting", "Quoting", f"{' '.join(WORDS[:20])} {' '.join(reversed(WORDS))}"),
        Page("marks", "Marks", "*** !!!"),
    ]
    collections.add(tmp_path, "docs", pages, FaultyDocuments(), source="a test")
    with collections.Collection(tmp_path, "docs") as docs:
        copies = NearCopies(docs)
    assert copies.of("section") == {"chapter"}
    assert (copies.count(shingles(SECTION)), copies.count(shingles("nowhere"))) == (2, 0)
    assert copies.of("chapter") == {"section"}
    assert copies.of("quoting") == copies.of("marks") == copies.of("absent") == frozenset()
