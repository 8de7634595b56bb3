"""No text ends its own fence, and quotes are found where they stand."""

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.core import untrusted
from rubricsvc.core.untrusted import clean
from rubricsvc.core.verdict import Evidence
from workers.judges.calls import QuoteIndex, fence, fence_in


@given(st.text())
def test_fence_never_occurs_inside(text: str) -> None:
    inside = clean(text).text
    first, _, rest = fence("completion", inside).partition("\n")
    body, _, last = rest.rpartition("\n")
    assert body == inside
    assert first not in inside
    assert last not in inside
    assert first[1:] == last[2:]


@given(st.text(alphabet='a"\n ', max_size=40))
def test_fence_in_never_occurs_inside(text: str) -> None:
    first, _, rest = fence_in('"""', text).partition("\n")
    inside, _, last = rest.rpartition("\n")
    assert inside == text
    assert first == last and len(first) >= 3 and set(first) == {'"'}
    assert first not in text


def test_fence_avoids_a_guessed_number() -> None:
    number = fence("x", "hello").split("\n")[0].removeprefix("<x-").removesuffix(">")
    again = fence("x", f"hello {number}")
    assert again.count(number) == 1


def test_fence_changes_a_number_that_occurs_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = (SimpleNamespace(hexdigest=lambda digest=digest: digest) for digest in ("aaaa", "bbbb", "cccc"))
    monkeypatch.setattr("workers.judges.calls.sha256", lambda _: next(digests))
    assert fence("x", "aaaa and </x-bbbb>").startswith("<x-cccc>")


def test_locate_finds_quotes() -> None:
    text = "Python asks the left\n  operand first, then the right."
    passages = QuoteIndex(text, text)
    found = passages.locate("asks the left operand")
    assert (found.start, found.end) == (7, 30)
    assert text[7:30] == "asks the left\n  operand"
    assert passages.locate("asks the right operand").start is None
    assert passages.locate("  ").start is None


def slowly(quote: str, shown: str, original: str) -> Evidence:
    """What `QuoteIndex.locate` means: the words with any blanks between them, and the shown characters counted out."""
    match = re.search(r"\s+".join(map(re.escape, quote.split())), shown) if quote.strip() else None
    if match is None:
        return Evidence(quote=quote)
    hidden = {found.start() for found in untrusted.INVISIBLE.finditer(original)}
    kept = [place for place in range(len(original)) if place not in hidden]
    return Evidence(quote=quote, start=kept[match.start()], end=kept[match.end() - 1] + 1)


@given(st.text(alphabet="ab. \t\n\u00a0\u200b\u202e", max_size=40), st.text(alphabet="ab. \n\u00a0", max_size=6))
def test_locate_equals_a_slow_search(original: str, quote: str) -> None:
    shown = clean(original).text
    assert QuoteIndex(shown, original).locate(quote) == slowly(quote, shown, original)


def test_locate_is_cheap_on_missing_quotes() -> None:
    text = "a \u200b" * 100_000
    passages = QuoteIndex(clean(text).text, text)
    assert {passages.locate("a " * (50_000 + n) + "b").start for n in range(50)} == {None}
    assert passages.locate("a " * 100_000).end == 3 * 99_999 + 1


@given(st.text(max_size=30), st.text(alphabet="ab \u200b\u202e\n", min_size=1, max_size=30), st.text(max_size=30))
def test_locate_counts_offsets_in_the_original(before: str, middle: str, after: str) -> None:
    original = before + middle + after
    shown = clean(original).text
    quote = clean(middle).text
    found = QuoteIndex(shown, original).locate(quote)
    if found.start is not None and found.end is not None:
        assert clean(original[found.start : found.end]).text.split() == quote.split()
    else:
        assert not quote.strip() or quote not in shown
