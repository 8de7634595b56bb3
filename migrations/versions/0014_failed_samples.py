"""Add ``items.redraws`` and ``items.repairs``: the attempts of a generation that gave no rubric.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
COLUMNS = ("redraws", "repairs")


def upgrade() -> None:
    """Add the columns."""
    for name in COLUMNS:
        op.add_column("items", sa.Column(name, Id))


def downgrade() -> None:
    """Drop the columns."""
    for name in COLUMNS:
        op.drop_column("items", name)
