"""All tables, as the code declares them: no version was released before.

A database that an earlier state of the code made has what is older; `0002` adds the rest.
"""

from __future__ import annotations

from alembic import op

import rubricsvc.store.tables  # noqa: F401 - declares them
from rubricsvc.store.tables import Base

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    Base.metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Remove all tables."""
    Base.metadata.drop_all(op.get_bind())
