"""The table of completions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from rubricsvc.core.prompt import Completion
from rubricsvc.store.base import DatedRow
from rubricsvc.store.tables.prompts import PromptRow


class CompletionRow(DatedRow):
    """A completion of a prompt."""

    __tablename__ = "completions"
    __table_args__ = (UniqueConstraint("prompt_id", "digest"),)

    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"))
    digest: Mapped[str] = mapped_column(String(64))
    policy: Mapped[str] = mapped_column(String(200), default="", index=True)
    content: Mapped[dict[str, Any]]

    prompt: Mapped[PromptRow] = relationship()

    @property
    def value(self) -> Completion:
        """The core value."""
        return Completion.model_validate(self.content)
