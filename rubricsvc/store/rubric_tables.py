"""Tables about rubric versions beside their review, of the same database as `tables`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.core.rubric_test import RubricTest, TestOutcome
from rubricsvc.store.base import DatedRow


class RubricTestRow(DatedRow):
    """What a judge found in the examples of a rubric version. None is ever changed: the newest measured one counts."""

    __tablename__ = "rubric_tests"

    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    by: Mapped[str] = mapped_column(String(200))
    outcome: Mapped[TestOutcome] = mapped_column(String(12))
    content: Mapped[dict[str, Any]]

    @property
    def test(self) -> RubricTest:
        """The results as a value."""
        return RubricTest.model_validate(self.content)
