"""The table of labels."""

from __future__ import annotations

from sqlalchemy import Float, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.core.label import Label
from rubricsvc.store.base import DatedRow


class LabelRow(DatedRow):
    """A person's verdict on one criterion (or ``overall``), under the rubric version that the person was shown."""

    __tablename__ = "labels"
    __table_args__ = (UniqueConstraint("completion_id", "rubric_id", "criterion", "annotator"),)

    completion_id: Mapped[int] = mapped_column(ForeignKey("completions.id"))
    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    criterion: Mapped[str] = mapped_column(String(200))
    annotator: Mapped[str] = mapped_column(String(200))
    value: Mapped[float | None] = mapped_column(Float)
    note: Mapped[str | None] = mapped_column(Text)

    @property
    def label(self) -> Label:
        """The core value."""
        return Label(criterion=self.criterion, annotator=self.annotator, value=self.value, note=self.note)
