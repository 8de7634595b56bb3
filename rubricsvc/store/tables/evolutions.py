"""The tables of evolutions, their candidates and the replies of proposers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Float, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from rubricsvc.core.evolution import Candidate, EvolutionSettings, HeldOutResult
from rubricsvc.store.base import DatedRow, utcnow
from rubricsvc.store.tables.judges import JudgeRow
from rubricsvc.store.tables.rubrics import RubricRow


class EvolutionRow(DatedRow):
    """The evolution of a rubric version against labels.

    ``key`` names the start, the settings and the labels, so that the same command continues it. ``data_digest`` is that
    of the labelled completions. ``fence`` grows with each process that works on it; only the newest one may record.
    """

    __tablename__ = "evolutions"

    key: Mapped[str] = mapped_column(String(64), unique=True)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    settings: Mapped[dict[str, Any]]
    budget: Mapped[float | None] = mapped_column(Float)
    parts: Mapped[dict[str, Any]]
    data_digest: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(20))
    fence: Mapped[int] = mapped_column(default=0)
    updated_at: Mapped[datetime] = mapped_column(default=utcnow)
    finished_at: Mapped[datetime | None]
    best: Mapped[int | None]
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))

    rubric: Mapped[RubricRow] = relationship()
    judge: Mapped[JudgeRow] = relationship()

    @property
    def settings_value(self) -> EvolutionSettings:
        """The settings as a value."""
        return EvolutionSettings.model_validate(self.settings)

    @property
    def held_out(self) -> HeldOutResult | None:
        """The comparison of the best candidate with the start, once it is made."""
        return HeldOutResult.model_validate(self.result) if self.result else None


class CandidateRow(DatedRow):
    """A candidate of an evolution; ``number`` counts from 0, the start. ``parents`` are numbers.

    ``rung`` is the largest part that it was scored on (-1: none), with this ``score``; ``whole`` where that is all of
    the search part. ``reason`` says why it has none.
    """

    __tablename__ = "candidates"
    __table_args__ = (UniqueConstraint("evolution_id", "number"),)

    evolution_id: Mapped[int] = mapped_column(ForeignKey("evolutions.id"))
    number: Mapped[int]
    generation: Mapped[int]
    island: Mapped[int]
    operator: Mapped[str] = mapped_column(String(20))
    parents: Mapped[list[Any]]
    content: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    rung: Mapped[int] = mapped_column(default=-1)
    whole: Mapped[bool] = mapped_column(default=False)
    score: Mapped[float | None] = mapped_column(Float)
    reason: Mapped[str | None] = mapped_column(String(300))

    @property
    def value(self) -> Candidate:
        """The core value."""
        return Candidate.model_validate(self.content)


class ProposalReplyRow(DatedRow):
    """A reply to a question of a proposer, which is not asked again."""

    __tablename__ = "proposal_replies"
    __table_args__ = (UniqueConstraint("evolution_id", "digest"),)

    evolution_id: Mapped[int] = mapped_column(ForeignKey("evolutions.id"))
    digest: Mapped[str] = mapped_column(String(64))
    answered: Mapped[int] = mapped_column(default=1)
    reply: Mapped[dict[str, Any]]
