"""The tables of jobs and their items, with the budget, replies and texts of a job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Float, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from rubricsvc.store.base import Base, DatedRow
from rubricsvc.store.tables.completions import CompletionRow
from rubricsvc.store.tables.judges import JudgeRow
from rubricsvc.store.tables.prompts import PromptRow
from rubricsvc.store.tables.rubrics import RubricRow

PENDING, LEASED, DONE, FAILED, CANCELLED = "pending", "leased", "done", "failed", "cancelled"
QUEUED, IN_PROGRESS, COMPLETED = "queued", "in_progress", "completed"
SCORE, GENERATE = "score", "generate"
COMPLETED_WITH_FAILURES, BUDGET_EXHAUSTED = "completed_with_failures", "budget_exhausted"


class JobRow(DatedRow):
    """A batch of completions to be scored by one judge, or of prompts for which it writes rubrics.

    ``key`` makes submission idempotent. ``settings`` are those of a generation (`core.generation.Generation`).

    ``budget`` (US dollars) limits what is ``spent`` and reserved, see `budgets`. Once a job is ``exhausted``, no
    item of it is started. ``min_coverage`` is used instead of the rubrics' own.
    """

    __tablename__ = "jobs"

    key: Mapped[str] = mapped_column(String(200), unique=True)
    content_key: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(12), default=SCORE)
    settings: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    name: Mapped[str] = mapped_column(String(200), default="")
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    status: Mapped[str] = mapped_column(String(30), default=QUEUED, index=True)
    finished_at: Mapped[datetime | None]
    budget: Mapped[float | None] = mapped_column(Float)
    spent: Mapped[float] = mapped_column(Float, default=0.0)
    exhausted: Mapped[bool] = mapped_column(default=False)
    min_coverage: Mapped[float | None] = mapped_column(Float)

    judge: Mapped[JudgeRow] = relationship()


class ReservationRow(Base):
    """US dollars of a job's budget that a worker has reserved for its calls.

    When they are ``lost`` with a killed worker, they are counted in the job's ``spent``.
    """

    __tablename__ = "reservations"

    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    worker: Mapped[str] = mapped_column(String(100), primary_key=True)
    dollars: Mapped[float] = mapped_column(Float)
    lost: Mapped[bool] = mapped_column(default=False)


_IS_PROMPT = text("prompt_id IS NOT NULL")


class ItemRow(Base):
    """One completion of a job, under one rubric: the unit of work, of leasing and of reward.

    An item of a generation has a prompt instead of a completion; its rubric is the generated one, once it is done.
    ``retries`` counts those that draw new samples, because none before was a rubric; ``redraws`` and ``repairs`` are
    those of an item without a rubric (of others, the rubric's provenance has them). The types of ``completion_id``
    and ``rubric_id`` are those of scored items, which all queries of rewards read.

    ``fence`` grows with each lease; only the holder of the newest fence may record. ``lost`` counts
    expired leases. ``question_set`` and the completion name the verdicts behind the reward; ``verdicts`` counts
    them, ``failed_verdicts`` the failed ones among them.
    """

    __tablename__ = "items"
    __table_args__ = (
        UniqueConstraint("job_id", "completion_id", "rubric_id"),
        Index(
            "ix_items_prompt", "job_id", "prompt_id", unique=True, sqlite_where=_IS_PROMPT, postgresql_where=_IS_PROMPT
        ),
        Index("ix_items_claim", "judge_id", "state", "id"),
        Index("ix_items_job", "job_id", "state"),
        Index("ix_items_lease", "state", "lease_until"),
        Index("ix_items_page", "job_id", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"), nullable=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), nullable=True)
    prompt_id: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"))
    retries: Mapped[int] = mapped_column(default=0)
    state: Mapped[str] = mapped_column(String(12), default=PENDING)
    fence: Mapped[int] = mapped_column(default=0)
    lease_until: Mapped[float | None] = mapped_column(Float)
    worker: Mapped[str | None] = mapped_column(String(100))
    lost: Mapped[int] = mapped_column(default=0)
    question_set: Mapped[str | None] = mapped_column(String(64))
    reward: Mapped[float | None] = mapped_column(Float)
    coverage: Mapped[float | None] = mapped_column(Float)
    formula: Mapped[str | None] = mapped_column(String(60))
    vetoed_by: Mapped[str | None] = mapped_column(String(200))
    null_reason: Mapped[str | None] = mapped_column(String(300))
    verdicts: Mapped[int] = mapped_column(default=0)
    failed_verdicts: Mapped[int] = mapped_column(default=0)
    redraws: Mapped[int | None]
    repairs: Mapped[int | None]

    completion: Mapped[CompletionRow] = relationship()
    rubric: Mapped[RubricRow] = relationship()
    prompt: Mapped[PromptRow] = relationship()


class ReplyRow(DatedRow):
    """A reply to one question of a generation: what a worker that takes over does not ask again, and provenance.

    ``reply`` is the first one; ``answered`` counts all replies, and is above 1 where the question was asked again.
    """

    __tablename__ = "replies"
    __table_args__ = (UniqueConstraint("item_id", "digest"),)

    item_id: Mapped[int] = mapped_column(ForeignKey("items.id"))
    digest: Mapped[str] = mapped_column(String(64))
    answered: Mapped[int] = mapped_column(default=1)
    reply: Mapped[dict[str, Any]]


class TextRow(Base):
    """A text by its SHA-256."""

    __tablename__ = "texts"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[str] = mapped_column(Text)
