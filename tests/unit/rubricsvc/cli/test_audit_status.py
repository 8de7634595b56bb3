"""What a run says of the audit of a service's judge."""

from __future__ import annotations

import pytest

from rubricsvc.cli.audit_status import status_at_service, status_of_stored
from rubricsvc.core.audit import Audit, Rate, StoredAudit, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.store import audits, judges
from rubricsvc.store.session import Database
from rubricsvc.store.tables import utcnow
from tests.integration.test_client import running
from tests.services import free_port
from trainer.config import ServiceJudge
from workers.audit.runner import asking_fingerprint

JUDGE = Judge(name="j", model="m")


def audit(*, rate: float, fingerprint: str = "f") -> Audit:
    found = Rate(n=10, hits=round(10 * rate), value=rate)
    suite = SuiteResult(name="s", measure="met", rate=found, max_rate=0.1, passed=rate <= 0.1)
    return Audit(digest="d", fingerprint=fingerprint, suites=(suite,))


@pytest.mark.integration
def test_status_at_service_has_the_newest_audit(db: Database) -> None:
    with running(db) as url:
        judge = ServiceJudge(service=url, name="j")
        assert "no audit (no judge 'j')" in status_at_service(judge).message
        with db.write() as session:
            judges.add(session, JUDGE)
        assert status_at_service(judge).record == {"judge_audit": None}
        with db.write() as session:
            for rate in (0.0, 0.5):
                audits.add(session, 1, audit(value=rate))
        found = status_at_service(judge)
    assert found.audit is not None and found.audit.id == 2
    assert found.message.startswith("judge j did not pass audit 2 of 20") and found.message.endswith(": s")
    assert found.record["judge_audit"]["rates"] == {"s": 0.5}


@pytest.mark.integration
def test_status_at_service_does_not_wait_for_a_service() -> None:
    judge = ServiceJudge(service=f"http://127.0.0.1:{free_port()}", name="j")
    assert status_at_service(judge).message == "judge j has no audit (the service does not answer yet)"


def test_status_of_stored_audit_with_another_fingerprint_is_outdated() -> None:
    def current(fingerprint: str) -> bool | None:
        stored = StoredAudit(id=1, created_at=utcnow(), passed=True, audit=audit(rate=0.0, fingerprint=fingerprint))
        return status_of_stored(JUDGE, stored).current

    assert current("another") is False
    assert current(asking_fingerprint(JUDGE)) is True
