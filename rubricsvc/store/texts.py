"""Long texts by digest, so that the settings of jobs refer to them, and workers on other machines have them."""

from __future__ import annotations

from hashlib import sha256

from sqlalchemy.orm import Session

from rubricsvc.errors import NotFoundError
from rubricsvc.store.tables import TextRow
from rubricsvc.store.upsert import get_or_add


def add(session: Session, text: str) -> str:
    """Store a text; return its SHA-256."""
    digest = sha256(text.encode()).hexdigest()
    get_or_add(session, TextRow, {"digest": digest}, content=text)
    return digest


def get(session: Session, digest: str) -> str:
    """Return the text.

    Raises:
        NotFoundError: There is none.
    """
    row = session.get(TextRow, digest)
    if row is None:
        raise NotFoundError(f"no text with the digest {digest} is stored", hint="give the text itself")
    return row.content
