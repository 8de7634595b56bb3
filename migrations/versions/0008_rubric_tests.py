"""Add tests of rubric versions by their own examples.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "rubric_tests",
        sa.Column("id", Id, nullable=False),
        sa.Column("rubric_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("by", sa.String(200), nullable=False),
        sa.Column("outcome", sa.String(12), nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rubric_tests"),
    )
    op.create_index("ix_rubric_tests_rubric_id", "rubric_tests", ["rubric_id"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("rubric_tests")
