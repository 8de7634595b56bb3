"""The passages of documents in memory, searched with BM25."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from typing import Self

from recipes.embedded_judge.statements import passages
from rubricsvc.core.prompt import Document

_SCHEMA = """
CREATE VIRTUAL TABLE passages USING fts5(
    id UNINDEXED, title, text, tokenize="porter unicode61 remove_diacritics 2 tokenchars '_'"
)
"""


class PassageIndex:
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
