"""Judges and what is stored with them, on both databases."""

import pytest

from rubricsvc.core.audit import Audit, Rate, SuiteResult
from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError
from rubricsvc.store import judges
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import AuditRow, JudgeRow
from tests.made_passport import made_passport

JUDGE = Judge(name="trained", engine="transformers_local", model="m")


def test_set_passport_stores_it_until_another_replaces_it(each_db: Database) -> None:
    newer = made_passport().model_copy(update={"description": "newer"})
    with each_db.write() as session:
        row = judges.add(session, JUDGE)
        assert not row.has_passport
        for passport in (made_passport(), newer):
            judges.set_passport(session, row.id, passport)
            assert row.has_passport and row.passport_value == passport
            assert row.measured and row.measured == passport.repeatability
        judges.add(session, Judge(name="other", model="m"))
    with each_db.write() as session:
        moved = JUDGE.model_copy(update={"endpoint": JUDGE.endpoint.model_copy(update={"timeout_s": 1.0})})
        judges.add(session, moved)
    with each_db.read() as session:
        assert judges.get(session, "trained").passport_value == newer
        assert [row.has_passport for row in page_of(session, JudgeRow, 0, 50)] == [True, False]


def test_set_passport_refuses_that_of_another_judge(each_db: Database) -> None:
    with each_db.write() as session:
        row = judges.add(session, JUDGE.model_copy(update={"template": "readout_short"}))
        with pytest.raises(InvalidError):
            judges.set_passport(session, row.id, made_passport())
        assert not row.has_passport


def test_add_refuses_an_adapter_without_the_digest_of_its_weights(each_db: Database) -> None:
    adapted = JUDGE.model_copy(update={"name": "a", "adapter": "folder"})
    panel = Judge(name="p", mode="panel", members=(JUDGE, adapted))
    for judge in (adapted, panel):
        with each_db.write() as session, pytest.raises(InvalidError) as caught:
            judges.add(session, judge)
        assert caught.value.path == "judge.weights_sha256"
    with each_db.write() as session:
        judges.add(session, adapted.model_copy(update={"weights_sha256": "0" * 64}))


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
