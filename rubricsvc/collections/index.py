"""One collection: an SQLite file with the parts of documents, searched by BM25."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection as Names
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self

from rubricsvc.collections.page import Link, Page
from rubricsvc.core.fingerprint import digest
from rubricsvc.errors import InvalidError, NotFoundError, UnavailableError

FORMAT = "1"
MAX_TERMS = 64
"""Different words of a query that are searched for: its first ones."""

_SCORES = "SELECT rowid AS part, bm25(parts, 2.0, 1.0) AS score FROM parts WHERE parts MATCH ?"
_SEARCH = """
WITH hits AS MATERIALIZED (
    SELECT rowid AS part, bm25(parts, 2.0, 1.0) AS score FROM parts WHERE parts MATCH ?
), best AS (
    SELECT document, part, min(score) AS score FROM hits JOIN places USING (part) GROUP BY document
)
SELECT id, title, -score, part FROM best JOIN documents ON number = document ORDER BY score, id LIMIT ?
"""


class SearchHit(NamedTuple):
    """A document that a query finds, with its best part. A higher score is better; it depends on the query."""

    id: str
    title: str
    score: float
    text: str

    def line(self, chars: int) -> str:
        """Return the document in a line: its id, its title, and up to ``chars`` characters of the part."""
        return f"[{self.id}] {self.title}" + (f": {' '.join(self.text.split())[:chars]}" if chars else "")


class Part(NamedTuple):
    """A part of a document, by the place of its first character."""

    document: str
    start: int
    text: str


class CollectionInfo(NamedTuple):
    """What a collection has. ``digest`` is the SHA-256 of ids, titles and texts, in any order."""

    name: str
    documents: int
    characters: int
    links: int
    digest: str
    source: str
    added: str


@contextmanager
def sqlite_errors(name: str) -> Iterator[None]:
    """Turn errors of SQLite into those of the project."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None)  # None: a text in the file is not UTF-8
        if isinstance(error, sqlite3.OperationalError) and code not in (None, sqlite3.SQLITE_ERROR):
            hint = "check its permissions and the free disk space"
            raise UnavailableError(f"collection {name!r} cannot be used: {error}", hint=hint) from error
        raise InvalidError(f"the file of collection {name!r} is damaged: {error}", hint=_add_again(name)) from error


class Collection:
    """An open collection. Use it from one thread at a time, in a ``with`` block."""

    def __init__(self, path: Path, name: str) -> None:
        """Open the file of a collection; `rubricsvc.collections.open_collection` finds it by name.

        Raises:
            InvalidError: The file is no collection, or one of another version.
        """
        self.name = name
        with sqlite_errors(name):
            self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            try:
                self._about = dict(self._db.execute("SELECT key, value FROM about"))
            except sqlite3.Error:
                self._db.close()
                raise
        if self._about.get("format") != FORMAT:
            self._db.close()
            message = f"collection {name!r} has the format {self._about.get('format')!r}, expected {FORMAT}"
            raise InvalidError(message, hint=_add_again(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, as it was added."""
        return str(self._about["digest"])

    @property
    def info(self) -> CollectionInfo:
        """What the collection has."""
        query = "SELECT count(*), coalesce(sum(characters), 0) FROM documents"
        ((documents, characters),) = self._rows(query)
        ((links,),) = self._rows("SELECT count(*) FROM (SELECT DISTINCT document, start FROM links)")
        source, added = self._about["source"], self._about["added"]
        return CollectionInfo(self.name, documents, characters, links, self.digest, source, added)

    def search(self, query: str, k: int = 10) -> list[SearchHit]:
        """Return up to ``k`` documents with any of the query's words, best first. The query is text, not syntax."""
        if not (terms := match_terms(query)):
            return []
        rows = self._rows(_SEARCH, (terms, k))
        return [SearchHit(id_, title, score, self._text(part)) for id_, title, score, part in rows]

    def ranked_parts(self, query: str, ids: Names[str]) -> list[Part]:
        """Return all parts of these documents: those with words of the query, best first, then the others in order."""
        numbers = {number: id_ for id_ in ids if (number := self._number(id_)) is not None}
        terms = match_terms(query)
        scores = dict(self._rows(_SCORES, (terms,))) if terms else {}
        found: list[tuple[float, int, Part]] = []
        for number, id_ in numbers.items():
            places = self._rows("SELECT part, start FROM places WHERE document = ?", (number,))
            found += [(scores.get(part, 0.0), part, Part(id_, start, self._text(part))) for part, start in places]
        return [part for *_, part in sorted(found)]

    def open(self, id_: str) -> Page:
        """Return a document.

        Raises:
            NotFoundError: There is none of this id.
        """
        rows = self._rows("SELECT number, title, place FROM documents WHERE id = ?", (id_,))
        if not rows:
            hint = f"search for it: rubricsvc collections search {self.name} QUERY"
            raise NotFoundError(f"no document {id_!r} in collection {self.name!r}", hint=hint)
        ((number, title, place),) = rows
        return Page(
            id_, title, "".join(text for _, text in self._parts(number)), self._links(id_), place, self._terms(id_)
        )

    def has_passage(self, id_: str, passage: str) -> bool:
        """Return whether a passage is in a document, word for word; only white space may differ.

        Raises:
            NotFoundError: There is no document of this id.
        """
        words = " ".join(passage.split())
        return bool(words) and words in " ".join(self.open(id_).text.split())

    def ids(self) -> list[str]:
        """Return the ids of all documents, in the order of their addition."""
        return [id_ for (id_,) in self._rows("SELECT id FROM documents ORDER BY number")]

    def pages(self) -> Iterator[Page]:
        """Yield all documents, in the order of their addition."""
        return map(self.open, self.ids())

    def content_digest(self) -> str:
        """Return the digest of the content as it is now, read again."""
        return digest_of_all([digest_of(page) for page in self.pages()])

    def _links(self, id_: str) -> tuple[Link, ...]:
        rows = self._rows("SELECT start, end, target FROM links WHERE document = ? ORDER BY start, end, target", (id_,))
        return tuple(Link(*row) for row in rows)

    def _terms(self, id_: str) -> tuple[str, ...]:
        if not self._has_terms:
            return ()
        rows = self._rows("SELECT term FROM terms WHERE document = ? ORDER BY term", (id_,))
        return tuple(term for (term,) in rows)

    @cached_property
    def _has_terms(self) -> bool:
        """Whether the file has index entries: those that were made before there were any have no table of them."""
        return bool(self._rows("SELECT 1 FROM sqlite_master WHERE name = 'terms'"))

    def _number(self, id_: str) -> int | None:
        rows = self._rows("SELECT number FROM documents WHERE id = ?", (id_,))
        number: int | None = rows[0][0] if rows else None
        return number

    def _parts(self, number: int) -> list[tuple[int, str]]:
        return self._rows(
            "SELECT part, text FROM places JOIN parts ON parts.rowid = part WHERE document = ? ORDER BY part", (number,)
        )

    def _text(self, part: int) -> str:
        ((text,),) = self._rows("SELECT text FROM parts WHERE rowid = ?", (part,))
        return str(text)

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a query; where the file is damaged, the error says so."""
        with sqlite_errors(self.name):
            return self._db.execute(query, values).fetchall()


def _add_again(name: str) -> str:
    return f"add it again: rubricsvc collections add {name} PATH --replace"


def match_terms(query: str) -> str:
    """Return a query of FTS5 for any of the words of a text; empty if it has none."""
    words = list(dict.fromkeys(re.findall(r"\w+", query)))[:MAX_TERMS]
    return " OR ".join(f'"{word}"' for word in words)


def digest_of(page: Page) -> str:
    """Return the SHA-256 of a document: its id, title and text."""
    return digest(page.id, page.title, page.text)


def digest_of_all(digests: list[str]) -> str:
    """Return the SHA-256 of a collection with documents of these digests."""
    return sha256("\n".join(sorted(digests)).encode()).hexdigest()
