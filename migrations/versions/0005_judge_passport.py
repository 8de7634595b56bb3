"""Add ``judges.passport``: what a trained judge was made from, and what it reaches.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("judges", sa.Column("passport", sa.JSON))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("judges", "passport")
