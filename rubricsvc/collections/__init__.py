"""Collections of documents: one SQLite FTS5 file each, in a folder. They need no service and no model.

``add`` makes one from pages (`reading.read`, `python_reference.python_pages`), ``open_collection`` reads it::

    with open_collection(folder, "papers") as papers:
        for hit in papers.search("retrieval of passages", k=5):
            page = papers.open(hit.id)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rubricsvc.collections.building import FaultyDocuments, build
from rubricsvc.collections.index import Collection, CollectionInfo, Part, SearchHit
from rubricsvc.collections.page import Link, Page
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError

__all__ = [
    "Collection",
    "CollectionInfo",
    "FaultyDocuments",
    "Link",
    "Page",
    "Part",
    "SearchHit",
    "add",
    "check_new",
    "delete",
    "names",
    "open_collection",
]

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
    """Make a collection of pages, as a whole or not at all.

    Args:
        folder: Folder of all collections; it is created if need be.
        name: Letters, digits, ``-`` and ``_``.
        pages: The documents.
        faults: Has what could not be read, and gets what cannot be added.
        source: Where the documents come from, in words.
        replace: Replace a collection of that name.
        skip_invalid: Leave out what has faults.

    Raises:
        ConflictError: There is a collection of that name.
        InvalidError: The name is invalid, or documents have faults and are not to be skipped.
    """
    path = check_new(folder, name, replace=replace)
    count = build(path, name, pages, faults, source=source, keep=skip_invalid)
    if faults.count and not (skip_invalid and count):
        more = f"\n… and {faults.count - len(faults.messages)} more" * (faults.count > len(faults.messages))
        message = "\n".join(faults.messages) + more
        hint = "correct them, or leave them out with --skip-invalid" if count else "no document is valid"
        raise InvalidError(f"invalid documents: {faults.count}\n{message}", hint=hint)
    if not count:
        raise InvalidError(f"{source} has no documents", hint="name a folder or a file with documents")
    with open_collection(folder, name) as collection:
        return collection.info


def check_new(folder: Path, name: str, *, replace: bool = False) -> Path:
    """Return the file of a collection that may be added.

    Raises:
        ConflictError: There is a collection of that name, which is not to be replaced.
        InvalidError: The name is invalid.
    """
    path = path_of(folder, name)
    if path.exists() and not replace:
        hint = f"replace it with --replace, or delete it: rubricsvc collections delete {name}"
        raise ConflictError(f"collection {name!r} exists already", hint=hint)
    return path


def open_collection(folder: Path, name: str) -> Collection:
    """Open a collection.

    Raises:
        NotFoundError: There is none of that name.
        InvalidError: Its file cannot be read.
    """
    path = path_of(folder, name)
    if not path.is_file():
        hint = f"add it: rubricsvc collections add {name} PATH; or list them: rubricsvc collections list"
        raise NotFoundError(f"no collection {name!r}", hint=hint)
    return Collection(path, name)


def names(folder: Path) -> list[str]:
    """Return the names of all collections in a folder."""
    files = folder.glob(f"*{_ENDING}") if folder.is_dir() else ()
    return sorted(name for file in files if _NAME.fullmatch(name := file.name.removesuffix(_ENDING)))


def delete(folder: Path, name: str) -> None:
    """Delete a collection.

    Raises:
        NotFoundError: There is none of that name.
    """
    path = path_of(folder, name)
    try:
        path.unlink()
    except FileNotFoundError:
        hint = "list them: rubricsvc collections list"
        raise NotFoundError(f"no collection {name!r}", hint=hint) from None


def path_of(folder: Path, name: str) -> Path:
    """Return the file of a collection.

    Raises:
        InvalidError: The name cannot be that of a file.
    """
    if not _NAME.fullmatch(name):
        hint = "expected letters, digits, - and _, at most 100"
        raise InvalidError(f"invalid name of a collection: {name!r}", hint=hint, path="collection")
    return folder / f"{name}{_ENDING}"
