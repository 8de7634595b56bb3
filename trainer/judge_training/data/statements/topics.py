"""The sentences of documents about which there are questions, and the two versions of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from rubricsvc.core.prompt import Document
from rubricsvc.errors import InvalidError
from trainer.judge_training.data.statements.documents import plain_title, proper_names, prose
from workers.authoring.alterations.alter import code_names
from workers.authoring.alterations.frames import read
from workers.authoring.alterations.tables import words_of

_CONDITION = re.compile(
    r"\b(?:if|when|while|where|whether|unless|until|which|that|who|whose|may|some|other|any)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Statement:
    """A sentence of a document in its two versions, each in several wordings."""

    sentence: str
    kind: str
    wordings: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def key(self) -> tuple[str, bool]:
        """The kind of the alteration, and whether the sentence is invented."""
        return self.kind, read(self.sentence) is not None

    @property
    def conflicting(self) -> bool:
        """Whether the two versions cannot both be true; of two names or two conditions, both may be."""
        if self.kind == "negated" and read(self.sentence):
            return True
        if self.kind == "number" and is_negated(self.sentence):
            return False
        return self.kind in ("negated", "number", "opposite", "quantifier") and not _CONDITION.search(self.sentence)


@dataclass(frozen=True)
class Topic:
    """A document with the sentences about which there are questions, by passage, and the code that it names."""

    id: str
    title: str
    codes: tuple[str, ...]
    passages: tuple[tuple[str, ...], ...]

    @cached_property
    def sentences(self) -> list[str]:
        """The sentences of all passages."""
        return [sentence for passage in self.passages for sentence in passage]


@dataclass(frozen=True)
class Stated:
    """A statement of an answer: the version and the wording that the answer has."""

    statement: Statement
    version: int
    wording: int

    @property
    def text(self) -> str:
        """The statement as the answer has it."""
        return self.statement.wordings[self.version][self.wording]


def topics(documents: Iterable[Document], exclude: Iterable[str] = ()) -> tuple[list[Topic], frozenset[str]]:
    """Return the documents' sentences, and the proper names in them.

    Of a sentence that several documents have, only the first document has it. A sentence is left out if it shares
    most of its words with a sentence of the texts in ``exclude``.

    Raises:
        InvalidError: fewer than two documents, or than ten sentences.
    """
    documents = list(documents)
    names = proper_names(documents)
    excluded = [long_words(sentence) for text in exclude for sentence in re.split(r"[.?!]\s+", text)]
    seen: set[str] = set()
    found = []
    for document in documents:
        passages: list[tuple[str, ...]] = []
        for sentences in prose(document):
            kept = tuple(s for s in sentences if s not in seen and not _is_excluded(s, excluded))
            seen.update(kept)
            if kept:
                passages.append(kept)
        if sum(map(len, passages)) >= 4:
            found.append(
                Topic(document.id, plain_title(document, names), tuple(code_names(document.text)), tuple(passages))
            )
    if len(found) < 2:
        raise InvalidError(
            f"{len(found)} documents with four or more sentences; expected two or more", hint="give more documents"
        )
    return found, names


def is_negated(text: str) -> bool:
    """Whether a text has a word of negation."""
    return "n't" in text or not words_of("negations").isdisjoint(_words(text))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def shared_words(text: str, other: str) -> float:
    """Return the share of a text's words and pairs of words that another text has."""
    words, others = _words(text), _words(other)
    pairs, there, pairs_there = list(pairwise(words)), set(others), set(pairwise(others))
    shared = sum(word in there for word in words) / len(words)
    return (shared + sum(pair in pairs_there for pair in pairs) / max(1, len(pairs))) / 2


def long_words(text: str) -> frozenset[str]:
    """Return the words of three or more letters."""
    return frozenset(word for word in _words(text) if len(word) > 2)


def _is_excluded(sentence: str, excluded: Sequence[frozenset[str]]) -> bool:
    words = long_words(sentence)
    return any(len(words & other) >= 0.6 * min(len(words), len(other)) for other in excluded if len(other) > 3)
