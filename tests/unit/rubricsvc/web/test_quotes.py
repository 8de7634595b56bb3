"""Quotes in a text: found, cut at each other's ends, and never losing a character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core.verdict import Evidence
from rubricsvc.web.jobs import QuoteSpan, locate, segments

TEXT = "Store it at 2 to 8 °C."


@given(
    st.text(max_size=30), st.lists(st.tuples(st.integers(-2, 40), st.integers(1, 20), st.integers(1, 5)), max_size=8)
)
def test_segments_keep_the_text_and_mark_what_is_quoted(text: str, places: list[tuple[int, int, int]]) -> None:
    """Spans outside the text, or partly, are cut."""
    spans = [QuoteSpan(start, start + length, number) for start, length, number in places]
    found = segments(text, spans)
    assert "".join(part.text for part in found) == text
    at = 0
    for part in found:
        assert part.text
        for place in range(at, at + len(part.text)):
            assert part.numbers == tuple(sorted({one.number for one in spans if one.start <= place < one.end}))
        at += len(part.text)


@pytest.mark.parametrize(
    ("quote", "place"),
    [
        (Evidence(quote="at 2", start=9, end=13), (9, 13)),
        (Evidence(quote="at 2"), None),
        (Evidence(quote="at 2", start=9, end=99), None),
        (Evidence(quote="at 2", start=5, end=5), None),
    ],
)
def test_locate_trusts_offsets_in_the_completion(quote: Evidence, place: tuple[int, int] | None) -> None:
    assert locate(TEXT, quote, is_original=True) == place


def test_locate_searches_a_trajectory() -> None:
    """The offsets count in one step, and not in the whole trajectory."""
    whole = f"[assistant]\n{TEXT.replace(' ', chr(10))}"
    assert locate(whole, Evidence(quote="it at  2", start=6, end=13), is_original=False) == (18, 25)
    assert locate(whole, Evidence(quote="never (", start=0, end=4), is_original=False) is None
    assert locate(whole, Evidence(quote=" ", start=0, end=1), is_original=False) is None
