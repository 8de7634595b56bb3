"""The tables of rubrics that evolve while a policy trains."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.core.criterion_buffer import BufferedCriterion, BufferState, EvolutionRound
from rubricsvc.store.base import DatedRow


class BufferedCriterionRow(DatedRow):
    """A criterion in the buffer of one prompt and its authored rubric (``base_id``), in one training run."""

    __tablename__ = "buffered_criteria"
    __table_args__ = (UniqueConstraint("run", "prompt_id", "base_id", "key"),)

    run: Mapped[str] = mapped_column(String(200))
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), index=True)
    base_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    key: Mapped[str] = mapped_column(String(200))
    state: Mapped[BufferState] = mapped_column(String(10))
    content: Mapped[dict[str, Any]]

    @property
    def value(self) -> BufferedCriterion:
        """The core value."""
        return BufferedCriterion.model_validate(self.content)


class RunStepRow(DatedRow):
    """The rubric version that a step (from 0) of a run used for a prompt, and the round that followed, if any did.

    ``event_id`` is the newest review event that decided the version, 0 for the authored one. ``target_id`` is the
    version that the round has written, null if it changed nothing.
    """

    __tablename__ = "run_steps"
    __table_args__ = (UniqueConstraint("run", "prompt_id", "base_id", "step"),)

    run: Mapped[str] = mapped_column(String(200))
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), index=True)
    base_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    step: Mapped[int]
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    event_id: Mapped[int] = mapped_column(default=0)
    target_id: Mapped[int | None] = mapped_column(ForeignKey("rubrics.id"))
    round: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))

    @property
    def round_value(self) -> EvolutionRound | None:
        """The round as a value."""
        return EvolutionRound.model_validate(self.round) if self.round is not None else None
