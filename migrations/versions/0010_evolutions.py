"""Add evolutions of rubrics: their candidates, and the replies of proposers.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "evolutions",
        sa.Column("id", Id, nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("rubric_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("judge_id", Id, sa.ForeignKey("judges.id"), nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("max_cost", sa.Float),
        sa.Column("parts", sa.JSON, nullable=False),
        sa.Column("data_digest", sa.String(64), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("fence", Id, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
        sa.Column("finished_at", Time),
        sa.Column("best", Id),
        sa.Column("result", sa.JSON),
        sa.Column("created_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_evolutions"),
        sa.UniqueConstraint("key", name="uq_evolutions_key"),
    )
    op.create_index("ix_evolutions_rubric_id", "evolutions", ["rubric_id"])
    op.create_table(
        "candidates",
        sa.Column("id", Id, nullable=False),
        sa.Column("evolution_id", Id, sa.ForeignKey("evolutions.id"), nullable=False),
        sa.Column("number", Id, nullable=False),
        sa.Column("generation", Id, nullable=False),
        sa.Column("island", Id, nullable=False),
        sa.Column("operator", sa.String(20), nullable=False),
        sa.Column("parents", sa.JSON, nullable=False),
        sa.Column("content", sa.JSON),
        sa.Column("rung", Id, nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        sa.Column("score", sa.Float),
        sa.Column("reason", sa.String(300)),
        sa.Column("created_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_candidates"),
        sa.UniqueConstraint("evolution_id", "number", name="uq_candidates_evolution_id_number"),
    )
    op.create_table(
        "proposal_replies",
        sa.Column("id", Id, nullable=False),
        sa.Column("evolution_id", Id, sa.ForeignKey("evolutions.id"), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("answered", Id, nullable=False),
        sa.Column("reply", sa.JSON, nullable=False),
        sa.Column("created_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_proposal_replies"),
        sa.UniqueConstraint("evolution_id", "digest", name="uq_proposal_replies_evolution_id_digest"),
    )


def downgrade() -> None:
    """Drop them. Rubrics, verdicts and jobs of evolutions stay."""
    for table in ("proposal_replies", "candidates", "evolutions"):
        op.drop_table(table)
