"""A collection of documents in an SQLite FTS5 index: search it, quote it.

A collection can be made of any texts; one is on every machine: `rubricsvc.collections.python_reference`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Self

from rubricsvc.core.prompt import Document

PASSAGE_WORDS = 60
"""Target length of a passage, in words."""

_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_UNDERLINE = re.compile(r"^[*=~^-]{3,}$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")

_SCHEMA = """
CREATE VIRTUAL TABLE passages USING fts5(
    id UNINDEXED, title, text, tokenize="porter unicode61 remove_diacritics 2 tokenchars '_'"
)
"""


class Documents:
    """The passages of ``documents`` in memory, searched with BM25. Use it from one thread, in a ``with`` block.

    A document becomes passages with ids ``document``, ``document.2``, ``document.3``, … in the order of its text. Of
    passages with the same text only the first is kept.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        by_text: dict[str, Document] = {}
        for document in documents:
            for passage in passages(document):
                by_text.setdefault(passage.text, passage)
        self._db = sqlite3.connect(":memory:")
        self._db.execute(_SCHEMA)
        rows = [(passage.id, passage.title, text) for text, passage in by_text.items()]
        self._db.executemany("INSERT INTO passages VALUES (?, ?, ?)", rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def search(self, query: str, limit: int = 5) -> list[Document]:
        """Return passages with any of the query's words, best first. The query is text, not FTS5 syntax."""
        terms = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query)))
        if not terms:
            return []
        rows = self._db.execute(
            "SELECT id, text, title FROM passages WHERE passages MATCH ?"
            " ORDER BY bm25(passages, 0.0, 2.0, 1.0), id LIMIT ?",
            (terms, limit),
        )
        return [Document(id=ident, text=text, title=title) for ident, text, title in rows]


def passages(document: Document, words: int = PASSAGE_WORDS) -> Iterator[Document]:
    """Split a document into passages of about ``words`` words at most.

    It is split between paragraphs, a long paragraph of prose between sentences, and always before a heading. Line
    breaks inside a paragraph of prose become spaces.
    """
    pending: list[str] = []
    number = 1
    for heading, text in [*_pieces(document.text, words), (False, "")]:
        full = len(" ".join([*pending, text]).split()) > words
        if pending and (heading or full or not text):
            ident = document.id if number == 1 else f"{document.id}.{number}"
            yield Document(id=ident, text="\n".join(pending), title=document.title)
            pending, number = [], number + 1
        if text:
            pending.append(text)


def _pieces(text: str, words: int) -> Iterator[tuple[bool, str]]:
    """Yield whether it begins with a heading, and a paragraph or a part of one. Code and grammar keep their lines."""
    for paragraph in _PARAGRAPH_BREAK.split(text):
        lines = [line for line in _UNDERLINE.sub("", paragraph).splitlines() if line.strip()]
        heading = _UNDERLINE.search(paragraph) is not None
        if any("::=" in line or line.lstrip().startswith((">>>", "+-", "|")) for line in lines):
            yield heading, "\n".join(lines)
            continue
        joined = " ".join(line.strip() for line in lines)
        part: list[str] = []
        for sentence in _SENTENCE.split(joined):
            if part and len(" ".join([*part, sentence]).split()) > words:
                yield heading, " ".join(part)
                part, heading = [], False
            part.append(sentence)
        if joined:
            yield heading, " ".join(part)
