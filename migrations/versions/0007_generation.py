"""Add jobs that generate rubrics: kind and settings of jobs, prompts as items, replies, and provenance of rubrics.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
JOBS = sa.table("jobs", sa.column("id"), sa.column("kind"))
IS_PROMPT = sa.text("prompt_id IS NOT NULL")


def upgrade() -> None:
    """Add the columns and the table. On SQLite the table of items is copied, since its columns become optional."""
    op.add_column("rubrics", sa.Column("provenance", sa.JSON))
    op.add_column("jobs", sa.Column("kind", sa.String(12), nullable=False, server_default="score"))
    op.add_column("jobs", sa.Column("settings", sa.JSON))
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("jobs", "kind", server_default=None)
    with op.batch_alter_table("items") as items:
        items.alter_column("completion_id", existing_type=Id, nullable=True)
        items.alter_column("rubric_id", existing_type=Id, nullable=True)
        items.add_column(sa.Column("prompt_id", Id))
        items.add_column(sa.Column("retries", Id, nullable=False, server_default="0"))
        items.create_foreign_key("fk_items_prompt_id_prompts", "prompts", ["prompt_id"], ["id"])
    names = ["job_id", "prompt_id"]
    op.create_index("ix_items_prompt", "items", names, unique=True, sqlite_where=IS_PROMPT, postgresql_where=IS_PROMPT)
    op.create_table(
        "replies",
        sa.Column("id", Id, nullable=False),
        sa.Column("item_id", Id, sa.ForeignKey("items.id"), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("answered", Id, nullable=False),
        sa.Column("reply", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replies"),
        sa.UniqueConstraint("item_id", "digest", name="uq_replies_item_id_digest"),
    )


def downgrade() -> None:
    """Drop them, with the jobs that generate rubrics. What these have generated stays."""
    op.drop_table("replies")
    for table in ("items", "reservations"):
        rows = sa.table(table, sa.column("job_id"))
        op.execute(sa.delete(rows).where(rows.c.job_id.in_(sa.select(JOBS.c.id).where(JOBS.c.kind == "generate"))))
    op.execute(sa.delete(JOBS).where(JOBS.c.kind == "generate"))
    op.drop_index("ix_items_prompt", "items")
    with op.batch_alter_table("items") as items:
        items.drop_constraint("fk_items_prompt_id_prompts", type_="foreignkey")
        items.drop_column("prompt_id")
        items.drop_column("retries")
        items.alter_column("completion_id", existing_type=Id, nullable=False)
        items.alter_column("rubric_id", existing_type=Id, nullable=False)
    for column in ("kind", "settings"):
        op.drop_column("jobs", column)
    op.drop_column("rubrics", "provenance")
