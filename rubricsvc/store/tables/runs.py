"""The tables of training runs, the metrics of their steps and their rollouts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Float, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from rubricsvc.core.states import RunState
from rubricsvc.store.base import Base, DatedRow
from rubricsvc.store.tables.rubrics import RubricRow


class RunRow(DatedRow):
    """A training run. ``key`` is its identity, which is kept in its folder.

    ``seen_at`` is when its trainer last reported, by `base.database_time`. ``judge_id`` is that of the judge
    ``judge``, where it is stored.
    """

    __tablename__ = "runs"

    key: Mapped[str] = mapped_column(String(200), unique=True)
    name: Mapped[str] = mapped_column(String(200))
    state: Mapped[RunState] = mapped_column(String(10))
    reason: Mapped[str | None] = mapped_column(Text)
    stop_requested: Mapped[bool] = mapped_column(default=False)
    seen_at: Mapped[float] = mapped_column(Float)
    finished_at: Mapped[datetime | None]
    host: Mapped[str] = mapped_column(String(255))
    folder: Mapped[str] = mapped_column(Text)
    judge: Mapped[str | None] = mapped_column(String(200))
    judge_id: Mapped[int | None] = mapped_column(ForeignKey("judges.id"))
    steps_total: Mapped[int]
    config: Mapped[dict[str, Any]]


class RunMetricsRow(DatedRow):
    """The metrics of one step (from 1) of a run; ``reward`` is the one among them."""

    __tablename__ = "run_metrics"
    __table_args__ = (UniqueConstraint("run_id", "step"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    step: Mapped[int]
    reward: Mapped[float | None] = mapped_column(Float)
    metrics: Mapped[dict[str, Any]]


class RolloutRow(Base):
    """A completion that a policy sampled in a step (from 1), at a ``place`` (from 0) in the batch, with its reward.

    The verdicts of one that a job has scored are those of its item; ``verdicts`` are those of any other.
    """

    __tablename__ = "rollouts"
    __table_args__ = (UniqueConstraint("run_id", "step", "place"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    step: Mapped[int]
    place: Mapped[int]
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), index=True)
    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"), index=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    judge_id: Mapped[int | None] = mapped_column(ForeignKey("judges.id"))
    item_id: Mapped[int | None] = mapped_column(ForeignKey("items.id"))
    reward: Mapped[float | None] = mapped_column(Float)
    null_reason: Mapped[str | None] = mapped_column(String(300))
    advantage: Mapped[float | None] = mapped_column(Float)
    tokens: Mapped[int]
    truncated: Mapped[bool]
    logprob_sum: Mapped[float | None] = mapped_column(Float)
    verdicts: Mapped[list[Any]]

    rubric: Mapped[RubricRow] = relationship()
