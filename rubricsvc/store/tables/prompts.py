"""The tables of prompts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from rubricsvc.core.prompt import Prompt
from rubricsvc.store.base import Base, DatedRow


class PromptRow(DatedRow):
    """A prompt; ``external_id`` is its id in the first file that brought it."""

    __tablename__ = "prompts"

    digest: Mapped[str] = mapped_column(String(64), unique=True)
    external_id: Mapped[str | None] = mapped_column(String(200), index=True)
    content: Mapped[dict[str, Any]]

    @property
    def value(self) -> Prompt:
        """The core value."""
        return Prompt.model_validate(self.content)


class PromptIdRow(Base):
    """Another id of a prompt, from another file than the first."""

    __tablename__ = "prompt_ids"

    external_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    prompt_id: Mapped[int] = mapped_column(ForeignKey("prompts.id"), primary_key=True)
