"""Which audit a judge has passed, as a training run reports and records it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.errors import RubricsvcError

if TYPE_CHECKING:
    from trainer.config import ServiceJudge


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """The newest audit of a judge, or why there is none.

    ``current`` says whether the judge is still asked as in the audit; None if that is unknown.
    """

    judge: str
    audit: StoredAudit | None = None
    current: bool | None = None
    missing_reason: str = ""

    @property
    def record(self) -> dict[str, Any]:
        """The entry of a run's ``config.json``: ``judge_audit`` is null without an audit."""
        if self.audit is None:
            return {"judge_audit": None}
        content = self.audit.audit
        fields = self.audit.model_dump(mode="json", exclude={"audit"})
        fields |= {"digest": content.digest, "non_default_options": content.non_default_options}
        rates = {suite.name: suite.rate.value for suite in content.suites}
        return {"judge_audit": {**fields, "current": self.current, "rates": rates}}

    @property
    def message(self) -> str:
        """One line for the person who starts the run."""
        if self.audit is None:
            return f"judge {self.judge} has no audit ({self.missing_reason})"
        options = self.audit.audit.non_default_options
        title = f"audit {self.audit.id} of {self.audit.created_at:%Y-%m-%d}" + (f" ({options})" if options else "")
        failed = ", ".join(suite.name for suite in self.audit.audit.failed_suites)
        result = f"passed {title}" if self.audit.passed else f"did not pass {title}: {failed}"
        outdated = "; its prompt has changed since, so audit it again" if self.current is False else ""
        return f"judge {self.judge} {result}{outdated}"


def status_of_stored(judge: Judge, audit: StoredAudit | None) -> AuditStatus:
    """Return the status of a judge in this database, given its newest audit."""
    if audit is None:
        return AuditStatus(judge.name, missing_reason=f"make one with `rubricsvc judges audit {judge.name}`")
    from workers.audit.runner import asking_fingerprint

    return AuditStatus(judge.name, audit, current=asking_fingerprint(judge) == audit.audit.fingerprint)


def status_at_service(judge: ServiceJudge) -> AuditStatus:
    """Return the status of a judge of a running service; unknown if the service does not answer yet."""
    from rubricsvc.client import Client

    try:
        with Client(judge.service, timeout=5.0) as client:
            *_, audit = (None, *client.iterate(client.judges.audits, judge.name))
    except RubricsvcError as error:
        return AuditStatus(judge.name, missing_reason=str(error))
    hint = f"make one with `rubricsvc judges audit {judge.name}` at the service"
    return AuditStatus(judge.name, audit, missing_reason=hint)
