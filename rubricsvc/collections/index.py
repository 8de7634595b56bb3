"""Collections: SQLite files with the parts of documents, written as a whole or not at all, and searched by BM25."""

import re
import sqlite3
from array import array
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.core.fingerprint import Shingles, digest, shingles
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError, UnavailableError, cut

FORMAT = "1"
MAX_TERMS = 64  # different words of a query that are searched for: its first ones

_SCORES = "SELECT rowid AS part, bm25(parts, 2.0, 1.0) AS score FROM parts WHERE parts MATCH ?"
_SEARCH = """
WITH hits AS MATERIALIZED (
    SELECT rowid AS part, bm25(parts, 2.0, 1.0) AS score FROM parts WHERE parts MATCH ?
), best AS (
    SELECT document, part, min(score) AS score FROM hits JOIN places USING (part) GROUP BY document
)
SELECT id, documents.title, -score, text
FROM best JOIN documents ON number = document JOIN parts ON parts.rowid = part ORDER BY score, id LIMIT ?
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
        hint = f"add it again: rubricsvc collections add {name} PATH --replace"
        raise InvalidError(f"the file of collection {name!r} is damaged: {error}", hint=hint) from error


class Collection(AbstractContextManager["Collection"]):
    """An open collection. Use it from one thread at a time, in a ``with`` block."""

    def __init__(self, folder: Path, name: str) -> None:
        """Open a collection; a NotFoundError without it, an InvalidError if its file is none or of another version."""
        self.name, path = name, path_of(folder, name, exists=True)
        with sqlite_errors(name), ExitStack() as opened:
            self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            opened.enter_context(closing(self._db))
            self._about = dict(self._db.execute("SELECT key, value FROM about"))
            if self._about.get("format") != FORMAT:
                message = f"collection {name!r} has the format {self._about.get('format')!r}, expected {FORMAT}"
                raise InvalidError(message, hint=f"add it again: rubricsvc collections add {name} PATH --replace")
            opened.pop_all()
        self.digest = str(self._about["digest"])
        """The SHA-256 of the content, as it was added."""

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @property
    def info(self) -> CollectionInfo:
        """What the collection has."""
        ((documents, characters),) = self._rows("SELECT count(*), coalesce(sum(characters), 0) FROM documents")
        ((links,),) = self._rows("SELECT count(*) FROM (SELECT DISTINCT document, start FROM links)")
        source, added = self._about["source"], self._about["added"]
        return CollectionInfo(self.name, documents, characters, links, self.digest, source, added)

    def search(self, query: str, k: int = 10) -> list[SearchHit]:
        """Return up to ``k`` documents with any of the query's words, best first. The query is text, not syntax."""
        if not (terms := match_terms(query)):
            return []
        return [SearchHit(*row) for row in self._rows(_SEARCH, (terms, k))]

    def ranked_parts(self, query: str, ids: Names[str]) -> list[Part]:
        """Return all parts of these documents: those with words of the query, best first, then the others in order."""
        rows = (self._rows("SELECT number, id FROM documents WHERE id = ?", (id_,)) for id_ in ids)
        numbers = dict(row for found in rows for row in found)
        terms = match_terms(query)
        scores = dict(self._rows(_SCORES, (terms,))) if terms else {}
        found: list[tuple[float, int, Part]] = []
        for number, id_ in numbers.items():
            query = "SELECT part, start, text FROM places JOIN parts ON parts.rowid = part WHERE document = ?"
            places = self._rows(query, (number,))
            found += [(scores.get(part, 0.0), part, Part(id_, start, text)) for part, start, text in places]
        return [part for *_, part in sorted(found)]

    def open(self, id_: str) -> "Page":
        """Return a document; a NotFoundError if there is none of this id."""
        rows = self._rows("SELECT number, title, place FROM documents WHERE id = ?", (id_,))
        if not rows:
            hint = f"search for it: rubricsvc collections search {self.name} QUERY"
            raise NotFoundError(f"no document {id_!r} in collection {self.name!r}", hint=hint)
        ((number, title, place),) = rows
        parts = "SELECT text FROM places JOIN parts ON parts.rowid = part WHERE document = ? ORDER BY part"
        text = "".join(text for (text,) in self._rows(parts, (number,)))
        links = "SELECT start, end, target FROM links WHERE document = ? ORDER BY start, end, target"
        terms = self._rows("SELECT term FROM terms WHERE document = ? ORDER BY term", (id_,))
        linked = tuple(Link(*row) for row in self._rows(links, (id_,)))
        return Page(id_, title, text, linked, place, tuple(term for (term,) in terms))

    def ids(self) -> list[str]:
        """Return the ids of all documents, in the order of their addition."""
        return [id_ for (id_,) in self._rows("SELECT id FROM documents ORDER BY number")]

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a query; where the file is damaged, the error says so."""
        with sqlite_errors(self.name):
            return self._db.execute(query, values).fetchall()


def match_terms(query: str) -> str:
    """Return a query of FTS5 for any of the words of a text; empty if it has none."""
    words = list(dict.fromkeys(re.findall(r"\w+", query)))[:MAX_TERMS]
    return " OR ".join(f'"{word}"' for word in words)


class Link(NamedTuple):
    """A reference from ``text[start:end]`` of one document to another. Several with the same place are alternatives."""

    start: int
    end: int
    target: str


class Page(NamedTuple):
    """A document with its links and the ``terms`` of an index that lead to it; ``place`` is where it was read."""

    id: str
    title: str
    text: str
    links: tuple[Link, ...] = ()
    place: str = ""
    terms: tuple[str, ...] = ()


PART_CHARS = 1000  # paragraphs are joined until a part has this length
MAX_PART_CHARS = 3000  # a longer paragraph is split after a sentence, a line or a word
_BREAK = re.compile(r"\n[ \t\r]*\n\s*")
_HEADING = re.compile(r"#{1,6} |[^\n]{1,200}\n([*=~^#-])\1{2,}[ \t]*$", re.MULTILINE)


def split(text: str) -> Iterator[str]:
    """Yield the parts of a text, in order. A heading begins a part."""
    begin = start = 0  # of the part, and of its next piece
    for end in [*(match.end() for match in _BREAK.finditer(text)), len(text)]:
        while end > start:
            stop = end
            if end - start > MAX_PART_CHARS:  # after a sentence, a line or a word, or anywhere
                low, stop = start + PART_CHARS, start + MAX_PART_CHARS
                cuts = ((text.rfind(mark, low, stop), len(mark)) for mark in (". ", "\n", " "))
                stop = next((at + length for at, length in cuts if at >= 0), stop)
            if start > begin and (stop - begin > PART_CHARS or _HEADING.match(text[start:stop])):
                yield text[begin:start]
                begin = start
            start = stop
    if start > begin:
        yield text[begin:start]


_SCHEMA = files("rubricsvc.collections").joinpath("schema.sql").read_text(encoding="utf-8")


@dataclass
class FaultyDocuments:
    """Documents that cannot be added: how many, and what is wrong with the first ones."""

    MOST: ClassVar[int] = 20

    count: int = 0
    messages: list[str] = field(default_factory=list)

    def add(self, place: str, message: str) -> None:
        """Count a fault."""
        self.count += 1
        if len(self.messages) < self.MOST:
            self.messages.append(f"{place}: {message}")


def _add(db: sqlite3.Connection, page: Page, faults: FaultyDocuments) -> bool:
    """Insert a document, or say what is wrong with it."""
    problem = "" if page.text.strip() else "the document has no text"
    row = db.execute("SELECT place FROM documents WHERE id = ?", (page.id,)).fetchone()
    if not page.id.strip() or not page.id.isprintable() or {"[", "]"} & {*page.id}:
        problem = f"the id {cut(repr(page.id), 80)} is blank, or has brackets or characters that cannot be printed"
    elif len(page.id) > MAX_NAME_LENGTH:
        problem = f"the id has {len(page.id)} characters, expected {MAX_NAME_LENGTH} at most: {cut(page.id, 80)}"
    elif not problem and row is not None:
        problem = f"the id {page.id!r} is that of {row[0]} already"
    if problem:
        faults.add(page.place, problem)
        return False
    values = (page.id, page.title, page.place, len(page.text))
    insert = "INSERT INTO documents (id, title, place, characters) VALUES (?, ?, ?, ?)"
    document = db.execute(insert, values).lastrowid
    start = 0
    for text in split(page.text):
        part = db.execute("INSERT INTO parts (title, text) VALUES (?, ?)", (page.title, text)).lastrowid
        db.execute("INSERT INTO places VALUES (?, ?, ?)", (part, document, start))
        start += len(text)
    db.executemany("INSERT INTO links VALUES (?, ?, ?, ?)", [(page.id, *link) for link in page.links])
    db.executemany("INSERT INTO terms VALUES (?, ?)", [(page.id, term) for term in dict.fromkeys(page.terms)])
    return True


_ENDING = ".fts.db"
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,99}", re.ASCII)


def add(
    folder: Path,
    name: str,
    pages: Iterable[Page],
    faults: FaultyDocuments,
    *,
    source: str,
    replace: bool = False,
    skip_invalid: bool = False,
) -> CollectionInfo:
    """Make a collection of pages, as a whole or not at all. Links to documents that do not exist are left out.

    The folder is created if need be. ``faults`` has what could not be read, and gets what cannot be added;
    ``skip_invalid`` leaves these out. ``source`` says in words where the documents come from.

    Raises:
        ConflictError: There is a collection of that name, and it is not to be replaced.
        InvalidError: The name is invalid, or documents have faults and are not to be skipped.
    """
    path = path_of(folder, name, exists=None if replace else False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{name}.", dir=path.parent) as parts, sqlite_errors(name):
        part = Path(parts) / path.name
        with closing(sqlite3.connect(part)) as db, db:
            db.executescript(_SCHEMA)
            digests = [digest(one.id, one.title, one.text) for one in pages if _add(db, one, faults)]
            db.execute("DELETE FROM links WHERE target NOT IN (SELECT id FROM documents)")
            now = datetime.now(UTC).isoformat(timespec="seconds")
            whole = sha256("\n".join(sorted(digests)).encode()).hexdigest()
            about = {"format": FORMAT, "digest": whole, "source": source, "added": now}
            db.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        if (count := len(digests)) and (skip_invalid or not faults.count):
            part.replace(path)
    if faults.count and not (skip_invalid and count):
        more = f"\n… and {faults.count - len(faults.messages)} more" * (faults.count > len(faults.messages))
        message = "\n".join(faults.messages) + more
        hint = "correct them, or leave them out with --skip-invalid" if count else "no document is valid"
        raise InvalidError(f"invalid documents: {faults.count}\n{message}", hint=hint)
    if not count:
        raise InvalidError(f"{source} has no documents", hint="name a folder or a file with documents")
    with Collection(folder, name) as collection:
        return collection.info


def names(folder: Path) -> list[str]:
    """Return the names of all collections in a folder."""
    files = folder.glob(f"*{_ENDING}") if folder.is_dir() else ()
    return sorted(name for file in files if _NAME.fullmatch(name := file.name.removesuffix(_ENDING)))


def delete(folder: Path, name: str) -> None:
    """Delete a collection; a NotFoundError if there is none of that name."""
    path_of(folder, name, exists=True).unlink(missing_ok=True)


def path_of(folder: Path, name: str, *, exists: bool | None = None) -> Path:
    """Return the file of a collection; a NotFoundError or a ConflictError unless it ``exists`` as is expected."""
    if not _NAME.fullmatch(name):
        hint = "expected letters, digits, - and _, at most 100"
        raise InvalidError(f"invalid name of a collection: {name!r}", hint=hint, path="collection")
    path = folder / f"{name}{_ENDING}"
    if exists and not path.is_file():
        hint = f"add it: rubricsvc collections add {name} PATH; or list them: rubricsvc collections show"
        raise NotFoundError(f"no collection {name!r}", hint=hint)
    if exists is False and path.exists():
        hint = f"replace it with --replace, or delete it: rubricsvc collections delete {name}"
        raise ConflictError(f"collection {name!r} exists already", hint=hint)
    return path


THRESHOLD = 0.6


class NearCopies:
    """The near copies of the pages of a collection, whose shingles are computed once."""

    def __init__(self, collection: Collection) -> None:
        self._shingles = {page.id: array("q", shingles(page.text)) for page in map(collection.open, collection.ids())}
        self._known: dict[str, frozenset[str]] = {}

    def of(self, id_: str) -> frozenset[str]:
        """Return the ids of the other pages that have most of a page, or of which it has most."""
        if id_ not in self._known:
            page = frozenset(self._shingles.get(id_, ()))
            self._known[id_] = frozenset(
                other
                for other, found in self._shingles.items()
                if other != id_ and len(page.intersection(found)) >= max(1.0, THRESHOLD * min(len(page), len(found)))
            )
        return self._known[id_]

    def count(self, part: Shingles) -> int:
        """Return how many pages have most of a text."""
        least = max(1.0, THRESHOLD * len(part))
        return sum(len(part.intersection(found)) >= least for found in self._shingles.values())
