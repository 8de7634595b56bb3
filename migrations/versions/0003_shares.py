"""The parts of judges' limits that workers use, for databases that were made without them."""

from __future__ import annotations

from alembic import op

from rubricsvc.store.tables import Base

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the table."""
    Base.metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Leave the table, which the first schema has too."""
