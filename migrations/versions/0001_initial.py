"""The first schema, as the tables of the code declare it: no version was released before.

The first migration after this one writes down here what it starts from.
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
