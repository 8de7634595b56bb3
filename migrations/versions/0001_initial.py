"""All tables. Constraints and indexes are named by the convention of `rubricsvc.store.base`.

Revision ID: 0001
Revises:
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
Name = sa.String(200)
Digest = sa.String(64)
Time = sa.DateTime(timezone=True)


def _column(name: str, kind: Any, refers_to: str = "", **options: Any) -> sa.Column[Any]:
    references = [sa.ForeignKey(refers_to)] if refers_to else []
    return sa.Column(name, kind, *references, **({"nullable": False} | options))


def _table(name: str, *columns: Any) -> None:
    """Create a table with an id and a time of creation."""
    created_at = _column("created_at", Time)
    op.create_table(name, _column("id", Id, primary_key=True), *columns, created_at)


def upgrade() -> None:
    """Create the tables."""
    _create_content()
    _create_work()
    _create_results()


def _create_content() -> None:
    _table(
        "judges",
        _column("name", Name, unique=True),
        _column("digest", Digest, index=True),
        _column("content", sa.JSON),
        _column("repeatability", sa.JSON, nullable=True),
    )
    _table(
        "prompts",
        _column("digest", Digest, unique=True),
        _column("external_id", Name, nullable=True, index=True),
        _column("content", sa.JSON),
    )
    op.create_table(
        "prompt_ids",
        _column("external_id", Name, primary_key=True),
        _column("prompt_id", Id, "prompts.id", primary_key=True),
    )
    _table(
        "rubrics",
        _column("name", Name),
        _column("version", Id),
        _column("digest", Digest, index=True),
        _column("prompt_id", Id, "prompts.id", nullable=True, index=True),
        _column("origin", sa.String(40)),
        _column("content", sa.JSON),
        sa.UniqueConstraint("name", "version"),
        sa.UniqueConstraint("name", "digest"),
    )
    _table(
        "completions",
        _column("prompt_id", Id, "prompts.id"),
        _column("digest", Digest),
        _column("policy", Name, index=True),
        _column("content", sa.JSON),
        sa.UniqueConstraint("prompt_id", "digest"),
    )
    _table(
        "keys",
        _column("name", Name),
        _column("digest", Digest, unique=True),
        _column("suffix", sa.String(8)),
        _column("expires_at", Time, nullable=True),
        _column("revoked_at", Time, nullable=True),
        _column("last_used_at", Time, nullable=True),
    )


def _create_work() -> None:
    _table("outbox", _column("task", sa.String(100)), _column("args", sa.JSON))
    _table(
        "jobs",
        _column("key", Name, unique=True),
        _column("content_key", Digest),
        _column("name", Name),
        _column("judge_id", Id, "judges.id"),
        _column("status", sa.String(30), index=True),
        _column("finished_at", Time, nullable=True),
        _column("budget", sa.Float, nullable=True),
        _column("spent", sa.Float),
        _column("exhausted", sa.Boolean),
    )
    op.create_table(
        "reservations",
        _column("job_id", Id, "jobs.id", primary_key=True),
        _column("worker", sa.String(100), primary_key=True),
        _column("dollars", sa.Float),
        _column("lost", sa.Boolean),
    )
    op.create_table(
        "items",
        _column("id", Id, primary_key=True),
        _column("job_id", Id, "jobs.id"),
        _column("judge_id", Id, "judges.id"),
        _column("completion_id", Id, "completions.id"),
        _column("rubric_id", Id, "rubrics.id"),
        _column("state", sa.String(12)),
        _column("fence", Id),
        _column("lease_until", sa.Float, nullable=True),
        _column("worker", sa.String(100), nullable=True),
        _column("lost", Id),
        _column("question_set", Digest, nullable=True),
        _column("reward", sa.Float, nullable=True),
        _column("coverage", sa.Float, nullable=True),
        _column("formula", sa.String(60), nullable=True),
        _column("vetoed_by", Name, nullable=True),
        _column("null_reason", sa.String(300), nullable=True),
        _column("verdicts", Id),
        _column("failed_verdicts", Id),
        sa.UniqueConstraint("job_id", "completion_id", "rubric_id"),
        sa.Index("ix_items_claim", "judge_id", "state", "id"),
        sa.Index("ix_items_job", "job_id", "state"),
        sa.Index("ix_items_lease", "state", "lease_until"),
    )


def _create_results() -> None:
    op.create_table(
        "questions",
        _column("question_set", Digest, primary_key=True),
        _column("criterion", Name, primary_key=True),
        _column("position", Id),
        _column("fingerprint", Digest),
    )
    _table(
        "verdicts",
        _column("completion_id", Id, "completions.id"),
        _column("fingerprint", Digest),
        _column("criterion", Name),
        _column("sample", Id),
        _column("rubric_id", Id, "rubrics.id"),
        _column("judge_id", Id, "judges.id"),
        _column("outcome", sa.String(10)),
        _column("value", sa.Float, nullable=True),
        _column("reason", sa.String(30), nullable=True),
        _column("details", sa.JSON),
        _column("attempts", Id),
        sa.UniqueConstraint("completion_id", "fingerprint", "sample"),
    )
    _table(
        "labels",
        _column("completion_id", Id, "completions.id"),
        _column("rubric_id", Id, "rubrics.id", index=True),
        _column("criterion", Name),
        _column("annotator", Name),
        _column("value", sa.Float, nullable=True),
        _column("note", sa.Text, nullable=True),
        sa.UniqueConstraint("completion_id", "rubric_id", "criterion", "annotator"),
    )
    _table(
        "audits",
        _column("judge_id", Id, "judges.id", index=True),
        _column("digest", Digest),
        _column("passed", sa.Boolean),
        _column("content", sa.JSON),
    )


def downgrade() -> None:
    """Drop the tables, each before those that it refers to."""
    for name in ("audits", "labels", "verdicts", "questions", "items", "reservations", "jobs", "outbox", "keys"):
        op.drop_table(name)
    for name in ("completions", "rubrics", "prompt_ids", "prompts", "judges"):
        op.drop_table(name)
