"""Add ``texts``: long texts that the settings of jobs refer to by digest, such as specifications.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "texts",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_texts"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("texts")
