"""The document index: passages, search, and loading."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricsvc.collections.python_reference import python_reference
from rubricsvc.core.prompt import Document
from trainer.environments.documents import Documents, passages

FEW = [
    Document(id="cats", title="Cats", text="Cats\n****\n\nA cat purrs when it is content.\n\nA cat hunts mice."),
    Document(id="dunder", title="Operators", text="The method `__radd__()` is the reflected `__add__()`."),
]


@pytest.fixture(scope="module")
def reference() -> Iterator[Documents]:
    with Documents(python_reference()) as documents:
        yield documents


def test_search_matches_stems() -> None:
    with Documents(FEW) as documents:
        [found] = documents.search("hunting a mouse, mice")
        assert (found.id, found.text) == ("cats", "Cats\nA cat purrs when it is content.\nA cat hunts mice.")


def test_search_matches_names_with_underscores() -> None:
    with Documents([*FEW, Document(id="add", text="To add is to sum up.")]) as documents:
        assert [found.id for found in documents.search("__radd__")] == ["dunder"]


@pytest.mark.parametrize("syntax", ['"', "'", '") OR * NEAR( ^', "NOT", "AND", "title:", "*", "-", "{}"])
def test_search_reads_fts5_syntax_as_text(syntax: str) -> None:
    with Documents(FEW) as documents:
        assert [passage.id for passage in documents.search(f"{syntax} purrs {syntax}")] == ["cats"]
        assert documents.search(syntax) == []


@given(st.text())
def test_search_takes_any_text(query: str) -> None:
    with Documents(FEW) as documents:
        assert "cats" in [passage.id for passage in documents.search(f"{query} purrs")]


def test_documents_keep_the_first_passage_of_a_text() -> None:
    with Documents([*FEW, Document(id="copy", text=FEW[1].text)]) as documents:
        assert [passage.id for passage in documents.search("reflected")] == ["dunder"]


def test_passages_keep_all_words_within_the_length() -> None:
    text = "\n\n".join(
        f"Paragraph {n} has a first sentence. It also has a second one, which is longer." for n in range(9)
    )
    cut = list(passages(Document(id="long", text=text), words=30))
    assert [passage.id for passage in cut[:2]] == ["long", "long.2"]
    assert all(len(passage.text.split()) <= 30 for passage in cut)
    assert " ".join(passage.text for passage in cut).split() == text.split()


def test_passages_split_long_paragraphs_between_sentences() -> None:
    (first, second) = passages(Document(id="p", text="One two three four. Five six seven eight."), words=5)
    assert (first.text, second.text) == ("One two three four.", "Five six seven eight.")


def test_passages_start_at_headings() -> None:
    cut = [passage.text for passage in passages(FEW[0], words=100)]
    assert cut == ["Cats\nA cat purrs when it is content.\nA cat hunts mice."]
    two = Document(id="t", text="Before.\n\nHeading\n=======\n\nAfter.")
    assert [passage.text for passage in passages(two)] == ["Before.", "Heading\nAfter."]


def test_passages_keep_lines_of_code() -> None:
    text = "Like this:\n\n   >>> 1 +\n   ... 1\n   2"
    (passage,) = passages(Document(id="c", text=text))
    assert passage.text.endswith("   >>> 1 +\n   ... 1\n   2")


def test_python_reference_is_searchable(reference: Documents) -> None:
    (best,) = reference.search("negative indices adding the length of the sequence", limit=1)
    assert "adding the length of the sequence" in best.text
    assert "`" in best.text and '"' not in best.text
