"""The tables of rubric versions, their review and their tests."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.core.rubric import Rubric
from rubricsvc.core.rubric_test import RubricTest, TestOutcome
from rubricsvc.core.states import APPROVED, RubricState
from rubricsvc.store.base import DatedRow


class RubricRow(DatedRow):
    """One version of a named rubric, for one prompt or (without ``prompt_id``) for any.

    ``state`` is that of its review, ``parent_id`` the version that it was edited from, ``added_by`` a person or key.
    ``provenance`` is that of a generated rubric; it is long, so that it is read when it is used.
    """

    __tablename__ = "rubrics"
    __table_args__ = (UniqueConstraint("name", "version"), UniqueConstraint("name", "digest"))

    name: Mapped[str] = mapped_column(String(200))
    version: Mapped[int]
    digest: Mapped[str] = mapped_column(String(64), index=True)
    prompt_id: Mapped[int | None] = mapped_column(ForeignKey("prompts.id"), index=True)
    origin: Mapped[str] = mapped_column(String(40), default="imported")
    state: Mapped[RubricState] = mapped_column(String(12), default=APPROVED)
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("rubrics.id"), index=True)
    added_by: Mapped[str | None] = mapped_column(String(200))
    content: Mapped[dict[str, Any]]
    provenance: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), deferred=True)

    @property
    def value(self) -> Rubric:
        """The core value."""
        return Rubric.model_validate(self.content)

    @property
    def ref(self) -> str:
        """The name and version, as name@version."""
        return f"{self.name}@{self.version}"


class RubricEventRow(DatedRow):
    """A change of a rubric version's state; or a comment, which leaves it as it was."""

    __tablename__ = "rubric_events"

    rubric_id: Mapped[int] = mapped_column(ForeignKey("rubrics.id"), index=True)
    from_state: Mapped[RubricState] = mapped_column(String(12))
    to_state: Mapped[RubricState] = mapped_column(String(12))
    by: Mapped[str] = mapped_column(String(200))
    comment: Mapped[str | None] = mapped_column(Text)


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
