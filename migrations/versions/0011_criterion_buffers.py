"""Add buffers of criteria that are proposed while a policy trains, and the rubric version of each step.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "buffered_criteria",
        sa.Column("id", Id, nullable=False),
        sa.Column("run", sa.String(200), nullable=False),
        sa.Column("prompt_id", Id, sa.ForeignKey("prompts.id"), nullable=False),
        sa.Column("base_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("content", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_buffered_criteria"),
        sa.UniqueConstraint(
            "run", "prompt_id", "base_id", "key", name="uq_buffered_criteria_run_prompt_id_base_id_key"
        ),
    )
    op.create_index("ix_buffered_criteria_prompt_id", "buffered_criteria", ["prompt_id"])
    op.create_table(
        "run_steps",
        sa.Column("id", Id, nullable=False),
        sa.Column("run", sa.String(200), nullable=False),
        sa.Column("prompt_id", Id, sa.ForeignKey("prompts.id"), nullable=False),
        sa.Column("base_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("step", Id, nullable=False),
        sa.Column("rubric_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("event_id", Id, nullable=False),
        sa.Column("target_id", Id, sa.ForeignKey("rubrics.id")),
        sa.Column("round", sa.JSON),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run_steps"),
        sa.UniqueConstraint("run", "prompt_id", "base_id", "step", name="uq_run_steps_run_prompt_id_base_id_step"),
    )
    op.create_index("ix_run_steps_prompt_id", "run_steps", ["prompt_id"])


def downgrade() -> None:
    """Drop the tables. The rubric versions stay."""
    op.drop_index("ix_run_steps_prompt_id", "run_steps")
    op.drop_table("run_steps")
    op.drop_index("ix_buffered_criteria_prompt_id", "buffered_criteria")
    op.drop_table("buffered_criteria")
