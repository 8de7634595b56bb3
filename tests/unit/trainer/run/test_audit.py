"""The status of a judge's stored audit, as a run reports it."""

from __future__ import annotations

from rubricsvc.core.audit import Audit, Rate, StoredAudit, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.store.base import utcnow
from trainer.run.inputs import audit_of as status_of_stored
from workers.audit.runner import asking_fingerprint

JUDGE = Judge(name="j", model="m")


def audit(*, rate: float, fingerprint: str = "f") -> Audit:
    found = Rate(n=10, hits=round(10 * rate), value=rate)
    suite = SuiteResult(name="s", measure="met", rate=found, max_rate=0.1, passed=rate <= 0.1)
    return Audit(digest="d", fingerprint=fingerprint, suites=(suite,))


def test_status_of_stored_audit_with_another_fingerprint_is_outdated() -> None:
    def current(fingerprint: str) -> bool | None:
        stored = StoredAudit(id=1, created_at=utcnow(), passed=True, audit=audit(rate=0.0, fingerprint=fingerprint))
        return status_of_stored(JUDGE, stored).current

    assert current("another") is False
    assert current(asking_fingerprint(JUDGE)) is True
