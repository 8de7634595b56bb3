"""Add the review of rubrics: states, parents, who added a version, and events.

Every version that exists is approved: jobs may use it already.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
PARENT = "fk_rubrics_parent_id_rubrics"


def upgrade() -> None:
    """Add the columns and the table."""
    op.add_column("rubrics", sa.Column("state", sa.String(12), nullable=False, server_default="approved"))
    op.add_column("rubrics", sa.Column("added_by", sa.String(200)))
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("rubrics", "state", server_default=None)
        op.add_column("rubrics", sa.Column("parent_id", Id))
        op.create_foreign_key(PARENT, "rubrics", "rubrics", ["parent_id"], ["id"])
    else:  # SQLite cannot add a constraint to a table, but a column that has one
        op.execute(f"ALTER TABLE rubrics ADD COLUMN parent_id INTEGER CONSTRAINT {PARENT} REFERENCES rubrics (id)")
    op.create_index("ix_rubrics_parent_id", "rubrics", ["parent_id"])
    op.create_table(
        "rubric_events",
        sa.Column("id", Id, nullable=False),
        sa.Column("rubric_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("from_state", sa.String(12), nullable=False),
        sa.Column("to_state", sa.String(12), nullable=False),
        sa.Column("by", sa.String(200), nullable=False),
        sa.Column("comment", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rubric_events"),
    )
    op.create_index("ix_rubric_events_rubric_id", "rubric_events", ["rubric_id"])


def downgrade() -> None:
    """Drop the table and the columns. Drafts become versions like all others."""
    op.drop_table("rubric_events")
    op.drop_index("ix_rubrics_parent_id", "rubrics")
    for column in ("parent_id", "added_by", "state"):
        op.drop_column("rubrics", column)
