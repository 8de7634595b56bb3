"""Add the evaluations of training runs, their completions and rewards.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "run_evaluations",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("step", Id, nullable=False),
        sa.Column("line", sa.JSON, nullable=False),
        sa.Column("created_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run_evaluations"),
        sa.UniqueConstraint("run_id", "name", "step", name="uq_run_evaluations_run_id_name_step"),
    )
    op.create_table(
        "evaluation_completions",
        sa.Column("id", Id, nullable=False),
        sa.Column("evaluation_id", Id, sa.ForeignKey("run_evaluations.id"), nullable=False),
        sa.Column("place", Id, nullable=False),
        sa.Column("prompt_id", Id, sa.ForeignKey("prompts.id"), nullable=False),
        sa.Column("completion_id", Id, sa.ForeignKey("completions.id"), nullable=False),
        sa.Column("rubric_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("greedy", sa.Boolean, nullable=False),
        sa.Column("tokens", Id, nullable=False),
        sa.Column("truncated", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_evaluation_completions"),
        sa.UniqueConstraint("evaluation_id", "place", name="uq_evaluation_completions_evaluation_id_place"),
    )
    op.create_index("ix_evaluation_completions_prompt_id", "evaluation_completions", ["prompt_id"])
    op.create_index("ix_evaluation_completions_completion_id", "evaluation_completions", ["completion_id"])
    op.create_table(
        "evaluation_rewards",
        sa.Column("id", Id, nullable=False),
        sa.Column("evaluation_id", Id, sa.ForeignKey("run_evaluations.id"), nullable=False),
        sa.Column("place", Id, nullable=False),
        sa.Column("score", sa.String(200), nullable=False),
        sa.Column("reward", sa.Float),
        sa.Column("null_reason", sa.String(300)),
        sa.Column("judge_id", Id, sa.ForeignKey("judges.id")),
        sa.Column("item_id", Id, sa.ForeignKey("items.id")),
        sa.Column("verdicts", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_evaluation_rewards"),
        sa.UniqueConstraint("evaluation_id", "place", "score", name="uq_evaluation_rewards_evaluation_id_place_score"),
    )


def downgrade() -> None:
    """Drop the tables. Prompts, rubrics and completions stay."""
    for table in ("evaluation_rewards", "evaluation_completions", "run_evaluations"):
        op.drop_table(table)
