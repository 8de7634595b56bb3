"""Audits beside their judges, on both databases."""

from __future__ import annotations

from rubricsvc.core.audit import Audit, Rate, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.services.judges import Judges
from rubricsvc.services.local import Validators
from rubricsvc.store import judges
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import AuditRow
from tests.rows import submit_job


def audit(rate: float) -> Audit:
    found = Rate(n=10, hits=round(10 * rate), value=rate, low=0.0, high=1.0)
    suite = SuiteResult(name="s", measure="met", rate=found, max_rate=0.1, passed=rate <= 0.1)
    return Audit(digest="d" * 64, fingerprint="f" * 64, suites=(suite,))


def test_newest_returns_the_last_audit_of_each_judge(each_db: Database) -> None:
    with each_db.write() as session:
        ids = [judges.add(session, Judge(name=name, model="m")).id for name in ("a", "b", "c")]
        for judge_id, rate in ((ids[0], 0.5), (ids[1], 0.0), (ids[0], 0.1)):
            judges.add_audit(session, judge_id, audit(rate))
    with each_db.read() as session:
        newest = judges.newest_audit(session, ids)
        assert {judge_id: row.passed for judge_id, row in newest.items()} == {ids[0]: True, ids[1]: True}
        assert newest[ids[0]].value.audit == audit(0.1)
        assert [row.passed for row in page_of(session, AuditRow, 0, 50, judge_id=ids[0])] == [False, True]
        assert [row.id for row in page_of(session, AuditRow, 1, 1, judge_id=ids[0])] == [3]
        assert page_of(session, AuditRow, 0, 50, judge_id=ids[2]) == [] and judges.newest_audit(session, []) == {}


def test_sample_of_job_is_a_random_sample(each_db: Database) -> None:
    job = submit_job(each_db, 8, judge=Judge(name="j", model="m"))
    found = Judges(each_db, Validators())
    sample = found.sample_of_job(job, 3, whole_groups=False)
    assert len({completion.text for _, _, completion in sample}) == 3
    assert found.sample_of_job(job, 3, whole_groups=False) == sample
    assert found.sample_of_job(job, 3, whole_groups=False, seed=1) != sample
    assert len(found.sample_of_job(job, 3, whole_groups=True)) == 8
