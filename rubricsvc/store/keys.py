"""API keys. 256 random bits need no slow hash: the SHA-256 of the secret is stored."""

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.errors import UnauthorizedError
from rubricsvc.store.session import existing, name_of
from rubricsvc.store.tables import KeyRow

PREFIX = "rsv_"


def create(session: Session, name: str, expires_in: timedelta | None = None) -> tuple[KeyRow, str]:
    """Create a key; return it with its secret, which is not stored."""
    name_of("a key's name", name)
    secret = PREFIX + secrets.token_urlsafe(32)
    expires_at = datetime.now(UTC) + expires_in if expires_in is not None else None
    digest = hashlib.sha256(secret.encode()).hexdigest()
    row = KeyRow(name=name, digest=digest, suffix=secret[-4:], expires_at=expires_at)
    session.add(row)
    session.flush()
    return row, secret


def verify(session: Session, secret: str) -> KeyRow:
    """Return the key that this secret belongs to."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    row = session.scalars(select(KeyRow).where(KeyRow.digest == digest)).first()
    hint = "make one with `rubricsvc keys create NAME`"
    if row is None:
        raise UnauthorizedError("unknown API key", hint=hint)
    if row.revoked_at is not None:
        raise UnauthorizedError(f"API key …{row.suffix} was revoked", hint=hint)
    if row.expires_at is not None and row.expires_at <= datetime.now(UTC):
        raise UnauthorizedError(f"API key …{row.suffix} has expired", hint=hint)
    return row


def revoke(session: Session, row_id: int) -> KeyRow:
    """Revoke a key; return its row."""
    row = existing(session, KeyRow, "key", row_id, hint="`rubricsvc keys list` shows them")
    row.revoked_at = row.revoked_at or datetime.now(UTC)
    return row
