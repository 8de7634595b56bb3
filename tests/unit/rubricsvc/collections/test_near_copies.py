"""Near copies: pages that have most of another page."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc import collections
from rubricsvc.collections import FaultyDocuments, Page
from rubricsvc.collections.near_copies import NearCopies, containment, shingles

WORDS = [f"word{number}" for number in range(200)]
SECTION, REST = " ".join(WORDS[:60]), " ".join(WORDS[60:])


@pytest.mark.parametrize(("text", "count"), [("", 0), ("one", 1), ("one two", 1), (SECTION, 56), ("a a a a a a a", 1)])
def test_shingles_are_the_different_runs_of_words(text: str, count: int) -> None:
    assert len(shingles(text)) == count


def test_shingles_ignore_case_punctuation_and_lines() -> None:
    assert shingles("One, two\nthree four. Five six") == shingles("one two three “four five” SIX")


def test_containment_is_the_share_of_the_part() -> None:
    assert containment(shingles(SECTION), shingles(f"{REST} {SECTION}")) == 1.0
    assert containment(shingles(f"{SECTION} {REST}"), shingles(SECTION)) == pytest.approx(56 / 196)
    assert containment(shingles(""), shingles(SECTION)) == 0.0


def test_near_copies_have_most_of_a_page_or_are_mostly_in_it(tmp_path: Path) -> None:
    pages = [
        Page("section", "Section", SECTION),
        Page("chapter", "Chapter", f"Before. {SECTION.upper()}! {REST}"),
        Page("quoting", "Quoting", f"{' '.join(WORDS[:20])} {' '.join(reversed(WORDS))}"),
        Page("marks", "Marks", "*** !!!"),
    ]
    collections.add(tmp_path, "docs", pages, FaultyDocuments(), source="a test")
    with collections.open_collection(tmp_path, "docs") as docs:
        copies = NearCopies(docs)
    assert copies.of("section") == {"chapter"}
    assert (copies.count(shingles(SECTION)), copies.count(shingles("nowhere"))) == (2, 0)
    assert copies.of("chapter") == {"section"}
    assert copies.of("quoting") == copies.of("marks") == copies.of("absent") == frozenset()
