"""Shingles: which texts repeat one another."""

from __future__ import annotations

import pytest

from rubricsvc.core.shingles import containment, copy_groups, shingles

WORDS = [f"word{number}" for number in range(200)]
SECTION, REST = " ".join(WORDS[:60]), " ".join(WORDS[60:])


@pytest.mark.parametrize(("text", "count"), [("", 0), ("one", 1), ("one two", 1), (SECTION, 56), ("a a a a a a a", 1)])
def test_shingles_are_the_different_runs_of_words(text: str, count: int) -> None:
    assert len(shingles(text)) == count


def test_containment_is_the_share_of_the_part() -> None:
    assert containment(shingles(SECTION), shingles(f"{REST} {SECTION}")) == 1.0
    assert containment(shingles(f"{SECTION} {REST}"), shingles(SECTION)) == pytest.approx(56 / 196)
    assert containment(shingles(""), shingles(SECTION)) == 0.0


def test_copy_groups_names_the_first_of_texts_that_repeat_one_another() -> None:
    longer = f"{SECTION} {WORDS[60]}"  # 56 of its 57 shingles are the section's
    texts = [SECTION, "short", f"{SECTION.upper()}!", longer, f"{SECTION} {REST}", "short", "*", "!"]
    assert copy_groups(texts) == [0, 1, 0, 0, 4, 1, 6, 7]
