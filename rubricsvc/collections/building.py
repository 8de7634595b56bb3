"""The file of a collection, written as a whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkdtemp

from rubricsvc.collections.index import FORMAT, digest_of, digest_of_all, sqlite_errors
from rubricsvc.collections.page import Page
from rubricsvc.collections.parts import split
from rubricsvc.core.base import MAX_NAME_LENGTH
from rubricsvc.errors import cut

_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, place TEXT NOT NULL,
    characters INTEGER NOT NULL
);
CREATE TABLE places (part INTEGER PRIMARY KEY, document INTEGER NOT NULL, start INTEGER NOT NULL);
CREATE INDEX places_document ON places (document);
CREATE TABLE links (document TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, target TEXT NOT NULL);
CREATE INDEX links_document ON links (document);
CREATE TABLE terms (document TEXT NOT NULL, term TEXT NOT NULL, PRIMARY KEY (document, term)) WITHOUT ROWID;
CREATE VIRTUAL TABLE parts USING fts5(
    title, text, tokenize = "porter unicode61 remove_diacritics 2 tokenchars '_'"
);
"""
_BRACKETS = re.compile(r"[\[\]]")


class FaultyDocuments:
    """Documents that cannot be added: how many, and what is wrong with the first ones."""

    MOST = 20

    def __init__(self) -> None:
        self.count = 0
        self.messages: list[str] = []

    def add(self, place: str, message: str) -> None:
        """Count a fault."""
        self.count += 1
        if len(self.messages) < self.MOST:
            self.messages.append(f"{place}: {message}")


def build(path: Path, name: str, pages: Iterable[Page], faults: FaultyDocuments, *, source: str, keep: bool) -> int:
    """Write the file of a collection and return how many documents it has; with faults only if ``keep`` is set.

    Links to documents that do not exist are left out.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _work_folder(path.parent, name) as folder, sqlite_errors(name):
        part = folder / path.name
        with closing(sqlite3.connect(part)) as db, db:
            db.executescript(_SCHEMA)
            digests = [digest_of(page) for page in pages if _add(db, page, faults)]
            db.execute("DELETE FROM links WHERE target NOT IN (SELECT id FROM documents)")
            now = datetime.now(UTC).isoformat(timespec="seconds")
            about = {"format": FORMAT, "digest": digest_of_all(digests), "source": source, "added": now}
            db.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        if digests and (keep or not faults.count):
            part.replace(path)
    return len(digests)


@contextmanager
def _work_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new folder, which is deleted afterwards, as are those of this name that killed processes have left.

    A process locks its folder for as long as it lives, and creates it while it locks the parent.
    """
    with ExitStack() as held:
        with _locked(parent):
            for left in parent.glob(f".{name}.{'?' * 8}"):
                with suppress(OSError), _locked(left, fcntl.LOCK_NB):
                    shutil.rmtree(left)
            folder = Path(mkdtemp(prefix=f".{name}.", dir=parent))
            held.enter_context(_locked(folder))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


@contextmanager
def _locked(folder: Path, flags: int = 0) -> Iterator[None]:
    """Lock a folder; with ``fcntl.LOCK_NB`` the lock of another process is a BlockingIOError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(descriptor)


def _add(db: sqlite3.Connection, page: Page, faults: FaultyDocuments) -> bool:
    """Insert a document, or say what is wrong with it."""
    if problem := _problem(page):
        faults.add(page.place, problem)
        return False
    row = db.execute("SELECT place FROM documents WHERE id = ?", (page.id,)).fetchone()
    if row is not None:
        faults.add(page.place, f"the id {page.id!r} is that of {row[0]} already")
        return False
    document = db.execute(
        "INSERT INTO documents (id, title, place, characters) VALUES (?, ?, ?, ?)",
        (page.id, page.title, page.place, len(page.text)),
    ).lastrowid
    start = 0
    for text in split(page.text):
        part = db.execute("INSERT INTO parts (title, text) VALUES (?, ?)", (page.title, text)).lastrowid
        db.execute("INSERT INTO places VALUES (?, ?, ?)", (part, document, start))
        start += len(text)
    db.executemany("INSERT INTO links VALUES (?, ?, ?, ?)", [(page.id, *link) for link in page.links])
    db.executemany("INSERT INTO terms VALUES (?, ?)", [(page.id, term) for term in dict.fromkeys(page.terms)])
    return True


def _problem(page: Page) -> str:
    if not page.id.strip() or not page.id.isprintable() or _BRACKETS.search(page.id):
        return f"the id {cut(repr(page.id), 80)} is blank, or has brackets or characters that cannot be printed"
    if len(page.id) > MAX_NAME_LENGTH:
        return f"the id has {len(page.id)} characters, expected {MAX_NAME_LENGTH} at most: {cut(page.id, 80)}"
    return "" if page.text.strip() else "the document has no text"
