"""The tables of the evaluations of training runs, their completions and rewards."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from rubricsvc.store.base import Base, DatedRow
from rubricsvc.store.tables.rubrics import RubricRow


class EvaluationRow(DatedRow):
    """An evaluation of a run. ``name`` is `core.run_evaluation.STEP`, or that of a baseline."""

    __tablename__ = "run_evaluations"
    __table_args__ = (UniqueConstraint("run_id", "name", "step"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    name: Mapped[str] = mapped_column(String(200))
    step: Mapped[int]
    line: Mapped[dict[str, Any]]


class EvaluationCompletionRow(Base):
    """A completion of an evaluation, at a ``place`` (from 0) in it."""

    __tablename__ = "evaluation_completions"
    __table_args__ = (UniqueConstraint("evaluation_id", "place"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("run_evaluations.id"))
    place: Mapped[int]
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), index=True)
    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"), index=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    greedy: Mapped[bool]
    tokens: Mapped[int]
    truncated: Mapped[bool]

    rubric: Mapped[RubricRow] = relationship()


class EvaluationRewardRow(Base):
    """The reward by one score of the completion at ``place`` in an evaluation.

    The verdicts of one that a job has scored are those of its item; ``verdicts`` are those of any other.
    """

    __tablename__ = "evaluation_rewards"
    __table_args__ = (UniqueConstraint("evaluation_id", "place", "score"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("run_evaluations.id"))
    place: Mapped[int]
    score: Mapped[str] = mapped_column(String(200))
    reward: Mapped[float | None] = mapped_column(Float)
    null_reason: Mapped[str | None] = mapped_column(String(300))
    judge_id: Mapped[int | None] = mapped_column(ForeignKey("judges.id"))
    item_id: Mapped[int | None] = mapped_column(ForeignKey("items.id"))
    verdicts: Mapped[list[Any]]
