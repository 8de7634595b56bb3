"""Passages of documents."""

from __future__ import annotations

from recipes.embedded_judge.documents import passages
from rubricsvc.core.prompt import Document

CATS = Document(id="cats", title="Cats", text="Cats\n****\n\nA cat purrs when it is content.\n\nA cat hunts mice.")


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
    cut = [passage.text for passage in passages(CATS, words=100)]
    assert cut == ["Cats\nA cat purrs when it is content.\nA cat hunts mice."]
    two = Document(id="t", text="Before.\n\nHeading\n=======\n\nAfter.")
    assert [passage.text for passage in passages(two)] == ["Before.", "Heading\nAfter."]


def test_passages_keep_lines_of_code() -> None:
    text = "Like this:\n\n   >>> 1 +\n   ... 1\n   2"
    (passage,) = passages(Document(id="c", text=text))
    assert passage.text.endswith("   >>> 1 +\n   ... 1\n   2")
