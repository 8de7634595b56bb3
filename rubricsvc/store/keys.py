"""API keys. 256 random bits need no slow hash: the SHA-256 of the secret is stored."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.errors import NotFoundError, UnauthorizedError
from rubricsvc.store.base import find, name_of, page_of, utcnow
from rubricsvc.store.tables import KeyRow

PREFIX = "rsv_"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def create(session: Session, name: str, expires_in: timedelta | None = None) -> tuple[KeyRow, str]:
    """Create a key; return it with its secret, which is not stored."""
    name_of("a key's name", name)
    secret = PREFIX + secrets.token_urlsafe(32)
    expires_at = utcnow() + expires_in if expires_in is not None else None
    row = KeyRow(name=name, digest=_digest(secret), suffix=secret[-4:], expires_at=expires_at)
    session.add(row)
    session.flush()
    return row, secret


def verify(session: Session, secret: str) -> KeyRow:
    """Return the key that this secret belongs to."""
    row = session.scalars(select(KeyRow).where(KeyRow.digest == _digest(secret))).first()
    hint = "make one with `rubricsvc keys create NAME`"
    if row is None:
        raise UnauthorizedError("unknown API key", hint=hint)
    if row.revoked_at is not None:
        raise UnauthorizedError(f"API key …{row.suffix} was revoked", hint=hint)
    if row.expires_at is not None and row.expires_at <= utcnow():
        raise UnauthorizedError(f"API key …{row.suffix} has expired", hint=hint)
    return row


def touch(session: Session, row_id: int) -> None:
    """Note that the key was used; at most once a minute, so that reading does not become writing."""
    row = session.get(KeyRow, row_id)
    if row is not None and (row.last_used_at is None or utcnow() - row.last_used_at > timedelta(minutes=1)):
        row.last_used_at = utcnow()


def revoke(session: Session, row_id: int) -> KeyRow:
    """Revoke a key; return its row."""
    row = find(session, KeyRow, row_id)
    if row is None:
        raise NotFoundError(f"no key {row_id}", hint="`rubricsvc keys list` shows them")
    row.revoked_at = row.revoked_at or utcnow()
    return row


def page(session: Session, *, after: int = 0, limit: int = 50) -> list[KeyRow]:
    """Return up to ``limit`` keys with ids above ``after``, ascending."""
    return page_of(session, KeyRow, after, limit)
