"""The table of API keys."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.store.base import DatedRow


class KeyRow(DatedRow):
    """An API key: the SHA-256 of its secret, and the last four characters to recognize it."""

    __tablename__ = "keys"

    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    suffix: Mapped[str] = mapped_column(String(8))
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
