"""What a run says of the audit of a service's judge."""

from __future__ import annotations

from rubricsvc.core.audit import Audit, Rate, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.store import judges
from rubricsvc.store.session import Database
from tests.integration.test_client import running
from trainer.config import ServiceJudge
from trainer.run.inputs import audit_at_service as status_at_service

JUDGE = Judge(name="j", model="m")


def audit(*, rate: float, fingerprint: str = "f") -> Audit:
    found = Rate(n=10, hits=round(10 * rate), value=rate)
    suite = SuiteResult(name="s", measure="met", rate=found, max_rate=0.1, passed=rate <= 0.1)
    return Audit(digest="d", fingerprint=fingerprint, suites=(suite,))


def test_status_at_service_has_the_newest_audit(db: Database) -> None:
    with running(db) as url:
        judge = ServiceJudge(service=url, name="j")
        assert status_at_service(judge).audit is None
        with db.write() as session:
            judges.add(session, JUDGE)
        assert status_at_service(judge).record == {"judge_audit": None}
        with db.write() as session:
            for rate in (0.0, 0.5):
                judges.add_audit(session, 1, audit(rate=rate))
        found = status_at_service(judge)
    assert found.audit is not None and found.audit.id == 2
    assert found.message.startswith("judge j did not pass audit 2 of 20") and found.message.endswith(": s")
    assert found.record["judge_audit"]["rates"] == {"s": 0.5}
