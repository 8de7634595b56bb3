"""Which audit a judge has passed, as a training run says it and records it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rubricsvc.errors import RubricsvcError, UnavailableError

if TYPE_CHECKING:
    from rubricsvc.core.audit import KeptAudit
    from rubricsvc.core.judge import Judge
    from trainer.config import ServiceJudge


@dataclass(frozen=True, slots=True)
class Standing:
    """``current``: the judge is still asked as in the audit; None: not known. ``why``: there is no audit, and why."""

    judge: str
    kept: KeptAudit | None = None
    current: bool | None = None
    why: str = ""

    @property
    def record(self) -> dict[str, Any]:
        """For a run's ``config.json``: ``judge_audit`` is null where there is none."""
        if self.kept is None:
            return {"judge_audit": None}
        rates = {one.name: one.found.rate for one in self.kept.audit.suites}
        told = self.kept.model_dump(mode="json", exclude={"audit"})
        told |= {"digest": self.kept.audit.digest, "otherwise": self.kept.audit.otherwise}
        return {"judge_audit": {**told, "current": self.current, "rates": rates}}

    @property
    def words(self) -> str:
        """One line for the person who starts the run."""
        if self.kept is None:
            return f"judge {self.judge} has no audit ({self.why})"
        what = f"audit {self.kept.id} of {self.kept.created_at:%Y-%m-%d}"
        what += f" ({self.kept.audit.otherwise})" if self.kept.audit.otherwise else ""
        failed = ", ".join(one.name for one in self.kept.audit.suites if one.passed is False)
        said = f"passed {what}" if self.kept.passed else f"did not pass {what}: {failed}"
        changed = "; it is asked otherwise now, so audit it again" if self.current is False else ""
        return f"judge {self.judge} {said}{changed}"


def of_stored(judge: Judge, kept: KeptAudit | None) -> Standing:
    """Of a judge in this database, with its newest audit."""
    if kept is None:
        return Standing(judge.name, why=f"`rubricsvc judges audit {judge.name}` attacks it before the policy does")
    from workers.audit.runner import asked_as

    return Standing(judge.name, kept, current=asked_as(judge) == kept.audit.fingerprint)


def of_service(judge: ServiceJudge) -> Standing:
    """Of a judge of a running service. Where that does not answer yet nothing is known; the run waits for it."""
    from rubricsvc.client import Client

    try:
        with Client(judge.service, timeout=5.0) as client:
            *_, kept = (None, *client.iterate(client.judges.audits, judge=judge.name))
    except UnavailableError:
        return Standing(judge.name, why="the service does not answer yet")
    except RubricsvcError as error:
        return Standing(judge.name, why=str(error))
    return Standing(judge.name, kept, why=f"`rubricsvc judges audit {judge.name}` at the service makes one")
