"""Add ``jobs.min_coverage``, which replaces that of the rubrics.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("jobs", sa.Column("min_coverage", sa.Float))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("jobs", "min_coverage")
