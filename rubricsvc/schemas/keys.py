"""Wire types of API keys."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from rubricsvc.schemas.base import Stored


class StoredKey(Stored):
    """An API key, without its secret."""

    name: str = Field(description="Name of the key's user.")
    suffix: str = Field(description="End of the secret.")
    last_used_at: datetime | None = Field(None, description="Time of the last use, to the minute.")
    expires_at: datetime | None = Field(None, description="Time at which it expires.")
    revoked_at: datetime | None = Field(None, description="Time at which it was revoked.")
