"""The tables of verdicts and of the questions that they answer."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Float, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.core.verdict import Verdict
from rubricsvc.store.base import Base, DatedRow


class QuestionRow(Base):
    """One question of a question set: what one judge is asked about one criterion of one rubric version.

    Items join their verdicts through it: ``items.question_set``, then ``completion_id`` and ``fingerprint``.
    """

    __tablename__ = "questions"

    question_set: Mapped[str] = mapped_column(String(64), primary_key=True)
    criterion: Mapped[str] = mapped_column(String(200), primary_key=True)
    position: Mapped[int]
    fingerprint: Mapped[str] = mapped_column(String(64))


class VerdictRow(DatedRow):
    """The answer to one question about one completion; every item that asks the question shares it.

    A scored or abstained verdict is never overwritten; a failed one is replaced by a later attempt. ``criterion``,
    ``rubric_id`` and ``judge_id`` are of the item that asked first.
    """

    __tablename__ = "verdicts"
    __table_args__ = (UniqueConstraint("completion_id", "fingerprint", "sample"),)

    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"))
    fingerprint: Mapped[str] = mapped_column(String(64))
    criterion: Mapped[str] = mapped_column(String(200))
    sample: Mapped[int] = mapped_column(default=0)
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"))
    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"))
    outcome: Mapped[str] = mapped_column(String(10))
    value: Mapped[float | None] = mapped_column(Float)
    reason: Mapped[str | None] = mapped_column(String(30))
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)
    attempts: Mapped[int] = mapped_column(default=1)

    @property
    def verdict(self) -> Verdict:
        """The verdict, on the criterion that asked first."""
        return self.verdict_on(self.criterion)

    def verdict_on(self, criterion: str) -> Verdict:
        """Return the verdict as one on ``criterion`` of the rubric that asks the same question."""
        names = ("outcome", "value", "reason", "sample", "fingerprint")
        fields = {name: getattr(self, name) for name in names}
        return Verdict.model_validate({"criterion": criterion, **fields, **self.details})
