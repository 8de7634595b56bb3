"""All tables.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "judges",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("repeatability", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_judges")),
        sa.UniqueConstraint("name", name=op.f("uq_judges_name")),
    )
    op.create_index(op.f("ix_judges_digest"), "judges", ["digest"])
    op.create_table(
        "keys",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("suffix", sa.String(length=8), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_keys_digest")),
    )
    op.create_table(
        "outbox",
        sa.Column("id", Id, nullable=False),
        sa.Column("task", sa.String(length=100), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_table(
        "prompts",
        sa.Column("id", Id, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("external_id", sa.String(length=200), nullable=True),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prompts")),
        sa.UniqueConstraint("digest", name=op.f("uq_prompts_digest")),
    )
    op.create_index(op.f("ix_prompts_external_id"), "prompts", ["external_id"])
    op.create_table(
        "questions",
        sa.Column("question_set", sa.String(length=64), nullable=False),
        sa.Column("criterion", sa.String(length=200), nullable=False),
        sa.Column("position", Id, nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("question_set", "criterion", name=op.f("pk_questions")),
    )
    op.create_table(
        "audits",
        sa.Column("id", Id, nullable=False),
        sa.Column("judge_id", Id, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["judge_id"], ["judges.id"], name=op.f("fk_audits_judge_id_judges")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audits")),
    )
    op.create_index(op.f("ix_audits_judge_id"), "audits", ["judge_id"])
    op.create_table(
        "completions",
        sa.Column("id", Id, nullable=False),
        sa.Column("prompt_id", Id, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("policy", sa.String(length=200), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["prompt_id"], ["prompts.id"], name=op.f("fk_completions_prompt_id_prompts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_completions")),
        sa.UniqueConstraint("prompt_id", "digest", name=op.f("uq_completions_prompt_id_digest")),
    )
    op.create_index(op.f("ix_completions_policy"), "completions", ["policy"])
    op.create_table(
        "jobs",
        sa.Column("id", Id, nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("content_key", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("judge_id", Id, nullable=False),
        sa.Column("status", sa.String(length=30), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("budget", sa.Float(), nullable=True),
        sa.Column("spent", sa.Float(), nullable=False),
        sa.Column("exhausted", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["judge_id"], ["judges.id"], name=op.f("fk_jobs_judge_id_judges")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("key", name=op.f("uq_jobs_key")),
    )
    op.create_index(op.f("ix_jobs_status"), "jobs", ["status"])
    op.create_table(
        "prompt_ids",
        sa.Column("external_id", sa.String(length=200), nullable=False),
        sa.Column("prompt_id", Id, nullable=False),
        sa.ForeignKeyConstraint(["prompt_id"], ["prompts.id"], name=op.f("fk_prompt_ids_prompt_id_prompts")),
        sa.PrimaryKeyConstraint("external_id", "prompt_id", name=op.f("pk_prompt_ids")),
    )
    op.create_table(
        "rubrics",
        sa.Column("id", Id, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("version", Id, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("prompt_id", Id, nullable=True),
        sa.Column("origin", sa.String(length=40), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["prompt_id"], ["prompts.id"], name=op.f("fk_rubrics_prompt_id_prompts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rubrics")),
        sa.UniqueConstraint("name", "digest", name=op.f("uq_rubrics_name_digest")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_rubrics_name_version")),
    )
    op.create_index(op.f("ix_rubrics_digest"), "rubrics", ["digest"])
    op.create_index(op.f("ix_rubrics_prompt_id"), "rubrics", ["prompt_id"])
    op.create_table(
        "items",
        sa.Column("id", Id, nullable=False),
        sa.Column("job_id", Id, nullable=False),
        sa.Column("judge_id", Id, nullable=False),
        sa.Column("completion_id", Id, nullable=False),
        sa.Column("rubric_id", Id, nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("fence", Id, nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("worker", sa.String(length=100), nullable=True),
        sa.Column("lost", Id, nullable=False),
        sa.Column("question_set", sa.String(length=64), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("coverage", sa.Float(), nullable=True),
        sa.Column("formula", sa.String(length=60), nullable=True),
        sa.Column("vetoed_by", sa.String(length=200), nullable=True),
        sa.Column("null_reason", sa.String(length=300), nullable=True),
        sa.Column("verdicts", Id, nullable=False),
        sa.Column("failed_verdicts", Id, nullable=False),
        sa.ForeignKeyConstraint(["completion_id"], ["completions.id"], name=op.f("fk_items_completion_id_completions")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_items_job_id_jobs")),
        sa.ForeignKeyConstraint(["judge_id"], ["judges.id"], name=op.f("fk_items_judge_id_judges")),
        sa.ForeignKeyConstraint(["rubric_id"], ["rubrics.id"], name=op.f("fk_items_rubric_id_rubrics")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_items")),
        sa.UniqueConstraint(
            "job_id", "completion_id", "rubric_id", name=op.f("uq_items_job_id_completion_id_rubric_id")
        ),
    )
    op.create_index("ix_items_claim", "items", ["judge_id", "state", "id"])
    op.create_index("ix_items_job", "items", ["job_id", "state"])
    op.create_index("ix_items_lease", "items", ["state", "lease_until"])
    op.create_table(
        "labels",
        sa.Column("id", Id, nullable=False),
        sa.Column("completion_id", Id, nullable=False),
        sa.Column("rubric_id", Id, nullable=False),
        sa.Column("criterion", sa.String(length=200), nullable=False),
        sa.Column("annotator", sa.String(length=200), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["completion_id"], ["completions.id"], name=op.f("fk_labels_completion_id_completions")
        ),
        sa.ForeignKeyConstraint(["rubric_id"], ["rubrics.id"], name=op.f("fk_labels_rubric_id_rubrics")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_labels")),
        sa.UniqueConstraint(
            "completion_id",
            "rubric_id",
            "criterion",
            "annotator",
            name=op.f("uq_labels_completion_id_rubric_id_criterion_annotator"),
        ),
    )
    op.create_index(op.f("ix_labels_rubric_id"), "labels", ["rubric_id"])
    op.create_table(
        "reservations",
        sa.Column("job_id", Id, nullable=False),
        sa.Column("worker", sa.String(length=100), nullable=False),
        sa.Column("dollars", sa.Float(), nullable=False),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_reservations_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "worker", name=op.f("pk_reservations")),
    )
    op.create_table(
        "verdicts",
        sa.Column("id", Id, nullable=False),
        sa.Column("completion_id", Id, nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("criterion", sa.String(length=200), nullable=False),
        sa.Column("sample", Id, nullable=False),
        sa.Column("rubric_id", Id, nullable=False),
        sa.Column("judge_id", Id, nullable=False),
        sa.Column("outcome", sa.String(length=10), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("reason", sa.String(length=30), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("attempts", Id, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["completion_id"], ["completions.id"], name=op.f("fk_verdicts_completion_id_completions")
        ),
        sa.ForeignKeyConstraint(["judge_id"], ["judges.id"], name=op.f("fk_verdicts_judge_id_judges")),
        sa.ForeignKeyConstraint(["rubric_id"], ["rubrics.id"], name=op.f("fk_verdicts_rubric_id_rubrics")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
        sa.UniqueConstraint(
            "completion_id", "fingerprint", "sample", name=op.f("uq_verdicts_completion_id_fingerprint_sample")
        ),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("verdicts")
    op.drop_table("reservations")
    op.drop_table("labels")
    op.drop_table("items")
    op.drop_table("rubrics")
    op.drop_table("prompt_ids")
    op.drop_table("jobs")
    op.drop_table("completions")
    op.drop_table("audits")
    op.drop_table("questions")
    op.drop_table("prompts")
    op.drop_table("outbox")
    op.drop_table("keys")
    op.drop_table("judges")
