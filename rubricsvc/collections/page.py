"""A page: a document as it is read, with its links to other documents."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class Link(NamedTuple):
    """A reference from ``text[start:end]`` of one document to another. Several with the same place are alternatives."""

    start: int
    end: int
    target: str


@dataclass(frozen=True, slots=True)
class Page:
    """A document with its links; ``place`` says where it was read, for errors.

    ``terms`` are the entries of an index that lead to it.
    """

    id: str
    title: str
    text: str
    links: tuple[Link, ...] = ()
    place: str = ""
    terms: tuple[str, ...] = ()


def linked_file(address: str, source: str) -> str | None:
    """Return the path of a relative address on the page ``source``; None if it leads elsewhere, or to the page."""
    try:
        parts = urlsplit(address.strip())
    except ValueError:
        return None
    if parts.scheme or parts.netloc or not parts.path:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), unquote(parts.path))).lstrip("/")
    return None if path == source else path
