"""Passages of documents."""

from __future__ import annotations

from recipes.embedded_judge.documents import passages
from rubricsvc.core.prompt import Document


def test_passages_keep_all_words_within_the_length() -> None:
    text = "\n\n".join(
        f"Paragraph {n} has a first sentence. It also has a second one, which is longer." for n in range(9)
    )
    cut = list(passages(Document(id="long", text=text), words=30))
    assert [passage.id for passage in cut[:2]] == ["long", "long.2"]
    assert all(len(passage.text.split()) <= 30 for passage in cut)
    assert " ".join(passage.text for passage in cut).split() == text.split()
