"""The tables of judges and their audits."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, column_property, mapped_column

from rubricsvc.core.audit import Audit, StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.passport import Passport
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.core.validation_messages import first_error
from rubricsvc.errors import InvalidError
from rubricsvc.store.base import DatedRow


class JudgeRow(DatedRow):
    """A judge. ``repeatability`` is the newest measurement, if there is one; ``passport`` that of a trained judge.

    A passport is long, so that it is read when it is used.
    """

    __tablename__ = "judges"

    name: Mapped[str] = mapped_column(String(200), unique=True)
    digest: Mapped[str] = mapped_column(String(64), index=True)
    content: Mapped[dict[str, Any]]
    repeatability: Mapped[dict[str, Any] | None]
    passport: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    has_passport: Mapped[bool] = column_property(passport.is_not(None))

    @property
    def measured(self) -> Repeatability | None:
        """The repeatability as a value."""
        return Repeatability.model_validate(self.repeatability) if self.repeatability else None

    @property
    def passport_value(self) -> Passport | None:
        """The passport as a value."""
        return Passport.model_validate(self.passport) if self.has_passport else None

    @property
    def value(self) -> Judge:
        """The core value.

        Raises:
            InvalidError: it was stored when fewer values, for example of addresses, were invalid.
        """
        try:
            return Judge.model_validate(self.content)
        except ValidationError as error:
            path, message = first_error(error, model=Judge, quoted=False)  # a URL may hold a password
            several = "members" in path
            hint = "judges add -f FILE` with valid members" if several else f"judges update {self.name} --url URL`"
            raise InvalidError(f"judge {self.name!r}: {path}: {message}", hint=f"run `rubricsvc {hint}") from error

    @property
    def error(self) -> str | None:
        """What makes the stored judge invalid, after the command that corrects it; None if it is valid."""
        try:
            self.value  # noqa: B018 - reading it validates
        except InvalidError as error:
            return f"{error.hint}: {error.message}"  # tables cut the end
        return None

    @property
    def valid(self) -> Judge | None:
        """The core value, or None if it is invalid; ``error`` says why."""
        return self.value if self.error is None else None


class AuditRow(DatedRow):
    """What an audit found of a judge. ``digest`` names what was asked. None is ever changed: the newest one counts."""

    __tablename__ = "audits"

    judge_id: Mapped[int] = mapped_column(ForeignKey("judges.id"), index=True)
    digest: Mapped[str] = mapped_column(String(64))
    passed: Mapped[bool]
    content: Mapped[dict[str, Any]]

    @property
    def value(self) -> StoredAudit:
        """The core value."""
        audit = Audit.model_validate(self.content)
        return StoredAudit(id=self.id, created_at=self.created_at, passed=self.passed, audit=audit)
