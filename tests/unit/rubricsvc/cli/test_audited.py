"""What a run says of the audit of a service's judge."""

from __future__ import annotations

import pytest

from rubricsvc.cli.audited import of_service, of_stored
from rubricsvc.core.audit import Audit, KeptAudit, Rate, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.store import audits, judges
from rubricsvc.store.session import Database
from rubricsvc.store.tables import utcnow
from tests.integration.test_client import running
from tests.services import free_port
from trainer.config import ServiceJudge
from workers.audit.runner import asked_as

JUDGE = Judge(name="j", model="m")


def audit(*, rate: float, fingerprint: str = "f") -> Audit:
    found = Rate(n=10, hits=round(10 * rate), rate=rate)
    suite = SuiteResult(name="s", measure="met", found=found, max_rate=0.1, passed=rate <= 0.1)
    return Audit(digest="d", fingerprint=fingerprint, suites=(suite,))


@pytest.mark.integration
def test_the_newest_audit_of_a_services_judge(db: Database) -> None:
    with running(db) as url:
        judge = ServiceJudge(service=url, name="j")
        assert "no audit (no judge 'j')" in of_service(judge).words
        with db.write() as session:
            judges.add(session, JUDGE)
        assert of_service(judge).record == {"judge_audit": None}
        with db.write() as session:
            for rate in (0.0, 0.5):
                audits.add(session, 1, audit(rate=rate))
        found = of_service(judge)
    assert found.kept is not None and found.kept.id == 2
    assert found.words.startswith("judge j did not pass audit 2 of 20") and found.words.endswith(": s")
    assert found.record["judge_audit"]["rates"] == {"s": 0.5}


@pytest.mark.integration
def test_a_service_that_is_away_keeps_no_run_waiting() -> None:
    judge = ServiceJudge(service=f"http://127.0.0.1:{free_port()}", name="j")
    assert of_service(judge).words == "judge j has no audit (the service does not answer yet)"


def test_an_audit_of_another_way_of_asking_is_one_of_the_past() -> None:
    def words(fingerprint: str) -> str:
        kept = KeptAudit(id=1, created_at=utcnow(), passed=True, audit=audit(rate=0.0, fingerprint=fingerprint))
        return of_stored(JUDGE, kept).words

    assert "asked otherwise now" in words("another")
    assert "asked otherwise now" not in words(asked_as(JUDGE))
