"""The judge of a training run, with what was measured of it: its newest audit and its repeatability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.cli.db import database
from rubricsvc.cli.run_rewards import stored_judge, uses_database
from rubricsvc.core.audit import StoredAudit
from rubricsvc.core.judge import Judge
from rubricsvc.core.repeatability import Repeatability
from rubricsvc.errors import RubricsvcError
from rubricsvc.store import judges
from workers.engines.local.weights import with_adapter_fields

if TYPE_CHECKING:
    from trainer.config import RunConfig, ServiceJudge


def judge_of_run(config: RunConfig) -> tuple[Judge | ServiceJudge, AuditStatus, Repeatability | None]:
    """Return the judge, its newest audit and its repeatability. The run's record has the whole judge, not its name.

    The repeatability of a service's judge comes with its rewards.
    """
    from trainer.local_only import check_local

    check_local(config)  # once more where stored judges are in place of their names
    judge = config.judge
    if not isinstance(judge, Judge | str):
        return judge, status_at_service(judge), None
    if isinstance(judge, Judge) and not uses_database(config):
        hint = "store it with `rubricsvc judges add`, then `judges audit`"
        return with_adapter_fields(judge), AuditStatus(judge.name, missing_reason=hint), None

    with database() as db:
        row = stored_judge(db, judge)
        with db.read() as session:
            audit = judges.newest_audit(session, [row.id]).get(row.id)
        return row.value, status_of_stored(row.value, audit.value if audit else None), row.measured


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
        fields |= content.model_dump(include={"digest", "non_default_options"})
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
        with Client(judge.service, timeout=5.0, outage_seconds=0.0) as client:
            audits = list(client.iterate(client.judges.audits, judge.name))
    except RubricsvcError as error:
        return AuditStatus(judge.name, missing_reason=str(error))
    hint = f"make one with `rubricsvc judges audit {judge.name}` at the service"
    newest = audits[-1] if audits else None
    return AuditStatus(judge.name, newest, missing_reason=hint)
