"""Add training runs, the metrics of their steps, and their rollouts.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Time = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "runs",
        sa.Column("id", Id, nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("stop_requested", sa.Boolean, nullable=False),
        sa.Column("seen_at", sa.Float, nullable=False),
        sa.Column("finished_at", Time),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("judge", sa.String(200)),
        sa.Column("judge_id", Id, sa.ForeignKey("judges.id")),
        sa.Column("steps_total", Id, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("created_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("key", name="uq_runs_key"),
    )
    op.create_table(
        "run_metrics",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("step", Id, nullable=False),
        sa.Column("reward", sa.Float),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("created_at", Time, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run_metrics"),
        sa.UniqueConstraint("run_id", "step", name="uq_run_metrics_run_id_step"),
    )
    op.create_table(
        "rollouts",
        sa.Column("id", Id, nullable=False),
        sa.Column("run_id", Id, sa.ForeignKey("runs.id"), nullable=False),
        sa.Column("step", Id, nullable=False),
        sa.Column("place", Id, nullable=False),
        sa.Column("prompt_id", Id, sa.ForeignKey("prompts.id"), nullable=False),
        sa.Column("completion_id", Id, sa.ForeignKey("completions.id"), nullable=False),
        sa.Column("rubric_id", Id, sa.ForeignKey("rubrics.id"), nullable=False),
        sa.Column("judge_id", Id, sa.ForeignKey("judges.id")),
        sa.Column("item_id", Id, sa.ForeignKey("items.id")),
        sa.Column("reward", sa.Float),
        sa.Column("null_reason", sa.String(300)),
        sa.Column("advantage", sa.Float),
        sa.Column("tokens", Id, nullable=False),
        sa.Column("truncated", sa.Boolean, nullable=False),
        sa.Column("logprob_sum", sa.Float),
        sa.Column("verdicts", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rollouts"),
        sa.UniqueConstraint("run_id", "step", "place", name="uq_rollouts_run_id_step_place"),
    )
    op.create_index("ix_rollouts_prompt_id", "rollouts", ["prompt_id"])
    op.create_index("ix_rollouts_completion_id", "rollouts", ["completion_id"])


def downgrade() -> None:
    """Drop the tables. Prompts, rubrics and completions stay."""
    for table in ("rollouts", "run_metrics", "runs"):
        op.drop_table(table)
