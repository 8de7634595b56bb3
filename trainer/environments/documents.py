"""A collection of documents in an SQLite FTS5 index: search it, quote it.

A collection can be made of any texts; one is on every machine, because CPython ships its language reference
(``pydoc_data.topics``).
"""

from __future__ import annotations

import importlib
import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Self

from rubricsvc.core.prompt import Document
from rubricsvc.errors import UnavailableError

PASSAGE_WORDS = 60
"""Target length of a passage, in words."""

_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_UNDERLINE = re.compile(r"^[*=~^-]{3,}$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*“])")

_SCHEMA = """
CREATE TABLE passages (id TEXT PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE passages_fts USING fts5(
    title, text, content=passages, tokenize="porter unicode61 remove_diacritics 2 tokenchars '_'"
);
"""


class Documents:
    """Passages of documents in memory, searched with BM25. Use it from one thread, in a ``with`` block.

    A document becomes passages with ids ``document``, ``document.2``, ``document.3``, … in the order of its text.

    Raises:
        UnavailableError: this Python's SQLite has no FTS5.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:")
        try:
            self._db.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            self._db.close()
            raise UnavailableError(f"cannot make a document index: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def __len__(self) -> int:
        """Return the number of passages."""
        return int(self._db.execute("SELECT count(*) FROM passages").fetchone()[0])

    def add(self, documents: Iterable[Document]) -> None:
        """Index documents. A passage with a known id or text is left out."""
        rows = [(passage.id, passage.title, passage.text) for document in documents for passage in passages(document)]
        with self._db:
            self._db.executemany("INSERT OR IGNORE INTO passages VALUES (?, ?, ?)", rows)
            self._db.execute("INSERT INTO passages_fts(passages_fts) VALUES ('rebuild')")

    def search(self, query: str, limit: int = 5) -> list[Document]:
        """Return passages with any of the query's words, best first. The query is text, not FTS5 syntax."""
        terms = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query)))
        if not terms:
            return []
        rows = self._db.execute(
            "SELECT p.id, p.text, p.title FROM passages_fts f JOIN passages p ON p.rowid = f.rowid"
            " WHERE passages_fts MATCH ? ORDER BY bm25(passages_fts, 2.0, 1.0), p.id LIMIT ?",
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


def python_reference() -> Iterator[Document]:
    """Yield CPython's language reference, about 80 long documents, the shortest first: chapters repeat their sections.

    Code, which ``pydoc`` sets in double quotes, is set in backticks, so that double quotes remain for quotations.

    Raises:
        UnavailableError: this Python was installed without it.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise UnavailableError("this Python has no pydoc_data.topics", hint="install CPython's full library") from error
    for name, text in sorted(topics.items(), key=lambda item: (len(item[1]), item[0])):
        plain = "\n\n".join(_code_in_backticks(paragraph) for paragraph in _PARAGRAPH_BREAK.split(text.strip()))
        yield Document(id=name, text=plain, title=plain.splitlines()[0])


def _code_in_backticks(paragraph: str) -> str:
    if paragraph.count('"') % 2:
        return paragraph  # a quote inside the code: the pairs are ambiguous
    return re.sub(r'"([^"]+)"', r"`\1`", paragraph)
