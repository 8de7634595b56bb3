"""The lease table against a model of it, and the cases that a random walk would seldom meet."""

import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import func, select

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import ConflictError
from rubricsvc.store import completions, jobs, leases
from rubricsvc.store.leases import ItemResult, Lease
from rubricsvc.store.session import Database, relay
from rubricsvc.store.tables import ItemRow, JobRow, OutboxRow, VerdictRow
from tests.databases import fresh_url
from tests.rows import RUBRIC, item_result, submit_job

JUDGE = Judge(name="j", model="m")
ITEMS = 7


def outcome(lease: Lease, *, fails: bool = False, value: float = 1.0) -> ItemResult:
    found = [Verdict.scored(criterion.key, value) for criterion in RUBRIC.criteria]
    if fails:
        found[0] = Verdict.failed("c1", "timeout")
    return item_result(lease, RUBRIC, found)


class Queue(RuleBasedStateMachine):
    """Workers claim, record, fall silent, come back late; jobs are cancelled and retried; the clock runs."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rubricsvc-queue-"))
        self.db = Database(fresh_url("sqlite", self.folder))
        self.clock = 1000.0
        self.patch = patch.object(leases, "database_time", lambda _session: self.clock)
        self.patch.start()
        self.job = submit_job(self.db, ITEMS, judge=JUDGE)
        self.held: list[Lease] = []  # every lease ever given: some are stale, and stay in the hands of their workers
        self.state = dict.fromkeys(self._ids(), "pending")
        self.fence = dict.fromkeys(self.state, 0)
        self.until: dict[int, float] = {}
        self.settled: set[int] = set()

    def _ids(self) -> list[int]:
        with self.db.read() as session:
            return list(session.scalars(select(ItemRow.id).order_by(ItemRow.id)))

    @rule(limit=st.integers(1, 4), seconds=st.sampled_from([10.0, 50.0]))
    def claim(self, limit: int, seconds: float) -> None:
        with self.db.write() as session:
            taken = leases.claim(session, 1, limit=limit, worker="w", seconds=seconds)
        expected = [id_ for id_, state in self.state.items() if state == "pending"][:limit]
        assert [lease.item_id for lease in taken] == expected
        for lease in taken:
            self.state[lease.item_id] = "leased"
            self.fence[lease.item_id] += 1
            self.until[lease.item_id] = self.clock + seconds
            assert lease.fence == self.fence[lease.item_id]
        self.held += taken

    @rule(data=st.data(), fails=st.booleans())
    def record(self, data: st.DataObject, fails: bool) -> None:
        if not self.held:
            return
        chosen = data.draw(st.lists(st.sampled_from(self.held), min_size=1, max_size=3, unique_by=lambda x: x.item_id))
        with self.db.write() as session:
            written = leases.record(session, [outcome(lease, fails=fails) for lease in chosen]).items
        ours = [lease for lease in chosen if self._is_held(lease)]
        assert sorted(written) == sorted(lease.item_id for lease in ours)
        for lease in ours:
            # a verdict settled by an earlier try stands, so that a failure cannot come back
            failed = fails and lease.item_id not in self.settled
            self.state[lease.item_id] = "failed" if failed else "done"
            if not failed:
                self.settled.add(lease.item_id)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if not self.held:
            return
        lease = data.draw(st.sampled_from(self.held))
        with self.db.write() as session:
            leases.release(session, [lease])
        if self._is_held(lease):
            self.state[lease.item_id] = "pending"

    @rule(seconds=st.sampled_from([1.0, 11.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock += seconds

    @rule()
    def reconcile(self) -> None:
        with self.db.write() as session:
            returned = leases.reconcile(session, max_leases=1000)
        expired = [id_ for id_, state in self.state.items() if state == "leased" and self.until[id_] < self.clock]
        assert returned == len(expired)
        self.state.update(dict.fromkeys(expired, "pending"))

    @rule()
    def cancel(self) -> None:
        with self.db.write() as session:
            jobs.cancel(session, self.job)
        for id_, state in self.state.items():
            if state in ("pending", "leased"):
                self.state[id_] = "cancelled"
                self.fence[id_] += 1

    @rule()
    def retry(self) -> None:
        reopened = [id_ for id_, state in self.state.items() if state in ("failed", "cancelled")]
        with self.db.write() as session:
            assert jobs.retry(session, self.job) == len(reopened)
        self.state.update(dict.fromkeys(reopened, "pending"))

    def _is_held(self, lease: Lease) -> bool:
        return self.state[lease.item_id] == "leased" and self.fence[lease.item_id] == lease.fence

    @invariant()
    def table_agrees(self) -> None:
        if not hasattr(self, "db"):
            return
        with self.db.read() as session:
            rows = dict(session.execute(select(ItemRow.id, ItemRow.state)).all())
            doubled = session.execute(
                select(VerdictRow.completion_id, VerdictRow.criterion)
                .group_by(VerdictRow.completion_id, VerdictRow.criterion)
                .having(func.count() > 1)
            ).all()
        assert rows == self.state
        assert not doubled

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.patch.stop()
            self.db.close()
            shutil.rmtree(self.folder)


Queue.TestCase.settings = settings(
    max_examples=settings.default.max_examples // 2, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
test_queue_agrees_with_its_model = Queue.TestCase


def claim_all(db: Database, seconds: float = 60.0) -> list[Lease]:
    with db.write() as session:
        return leases.claim(session, 1, limit=100, worker="w", seconds=seconds)


def test_record_keeps_stored_verdict_of_another_job(each_db: Database) -> None:
    first, second = (submit_job(each_db, 1, judge=JUDGE, key=key) for key in "ab")
    one, two = claim_all(each_db)
    assert (one.job_id, two.job_id) == (first, second)
    with each_db.write() as session:
        leases.record(session, [outcome(one, value=1.0)])
    with each_db.write() as session:
        leases.record(session, [outcome(two, value=0.0)])
    with each_db.read() as session:
        rewards = [jobs.items(session, job)[0].reward for job in (first, second)]
        assert rewards == [1.0, 1.0]
        assert len(completions.verdict_page(session)) == 3


def test_relay_keeps_what_the_broker_did_not_take(db: Database) -> None:
    submit_job(db, 2, judge=JUDGE)
    with db.write() as session:
        leases.publish(session, 2, 1)
    sent: list[object] = []

    def first_only(_task: str, args: list[object]) -> None:
        if sent:
            raise ConnectionError("broker is gone")
        sent.append(args)

    assert relay(db, first_only) == 1 and relay(db, lambda *_: None) == 1


def test_record_replaces_failed_verdict_and_counts_attempts(each_db: Database) -> None:
    job = submit_job(each_db, 1, judge=JUDGE)
    taken = claim_all(each_db)
    with each_db.write() as session:
        leases.record(session, [outcome(lease, fails=True) for lease in taken])
    with each_db.write() as session:
        leases.finish(session)
    with each_db.read() as session:
        assert jobs.get(session, job).status == "completed_with_failures"
        assert jobs.items(session, job)[0].reward is None
    with each_db.write() as session:
        assert jobs.retry(session, job) == 1
    again = claim_all(each_db)
    with each_db.write() as session:
        leases.record(session, [outcome(lease) for lease in again])
        leases.finish(session)
    with each_db.read() as session:
        assert jobs.get(session, job).status == "completed" and jobs.items(session, job)[0].reward == 1.0
        assert [row.attempts for row in completions.verdict_page(session) if row.criterion == "c1"] == [2]


def test_reconcile_fails_item_after_max_leases(each_db: Database) -> None:
    job = submit_job(each_db, 1, judge=JUDGE)
    for _ in range(3):
        assert len(claim_all(each_db, seconds=-1.0)) == 1
        with each_db.write() as session:
            assert leases.reconcile(session, max_leases=3) == 1
    with each_db.read() as session:
        item = jobs.items(session, job)[0]
        assert (item.state, item.reward) == ("failed", None) and "worker_lost" in str(item.null_reason)
        assert jobs.get(session, job).status == "completed_with_failures"


def test_reconcile_publishes_only_work_without_a_message(each_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_job(each_db, 2, judge=JUDGE)

    def messages() -> int:
        with each_db.read() as session:
            return session.scalar(select(func.count()).where(OutboxRow.sent_at.is_(None))) or 0

    def reconcile() -> None:
        with each_db.write() as session:
            leases.reconcile(session, max_leases=9)

    assert messages() == 1  # from the submission, not yet sent
    reconcile()
    assert messages() == 1
    sent: list[list[int]] = []
    assert relay(each_db, lambda _task, args: sent.append(args)) == 1 and [judge for judge, _ in sent] == [1]
    reconcile()
    assert messages() == 0  # on its way to a worker
    monkeypatch.setattr(leases, "UNREAD_SECONDS", -1.0)
    reconcile()
    assert messages() == 1  # sent and lost: published again
    relay(each_db, lambda *_: None)
    with each_db.write() as session:
        leases.claim(session, 1, limit=1, worker="w", seconds=60)
    reconcile()
    assert messages() == 0  # a worker holds a lease, and will claim the other item too


def test_submit_is_idempotent_and_rejects_the_key_of_another_job(each_db: Database) -> None:
    for key in (None, "k"):
        first = submit_job(each_db, 3, judge=JUDGE, key=key)
        assert submit_job(each_db, 3, judge=JUDGE, key=key) == first
        with each_db.read() as session:
            assert jobs.progress(session, first).total == 3
    with pytest.raises(ConflictError):
        submit_job(each_db, 4, judge=JUDGE, key="k")


def test_record_writes_shared_verdicts_of_a_batch_once(each_db: Database) -> None:
    """One finds a score, the other a failure: the score stands, and both rewards are folded from it."""
    first, second = (submit_job(each_db, 1, judge=JUDGE, key=key) for key in "ab")
    one, two = claim_all(each_db)
    with each_db.write() as session:
        assert len(leases.record(session, [outcome(one, fails=True), outcome(two)]).items) == 2
    with each_db.read() as session:
        rows = [jobs.items(session, job)[0] for job in (first, second)]
        assert [(row.state, row.reward) for row in rows] == [("done", 1.0), ("done", 1.0)]
        assert len(completions.verdict_page(session)) == 3


def test_record_recomputes_item_repaired_by_two_workers_at_once(each_db: Database) -> None:
    job = submit_job(each_db, 1, judge=JUDGE)
    (lease,) = claim_all(each_db)
    failed = [Verdict.failed(criterion.key, "timeout") for criterion in RUBRIC.criteria[:2]]
    with each_db.write() as session:
        leases.record(session, [item_result(lease, RUBRIC, [*failed, Verdict.scored("c3", 1.0)])])
    parts = [RUBRIC.model_copy(update={"criteria": (criterion,)}) for criterion in RUBRIC.criteria[:2]]
    for part in parts:
        submit_job(each_db, 1, judge=JUDGE, rubric=part)
    first, second = (
        item_result(lease, part, [Verdict.scored(part.criteria[0].key, 1.0)])
        for lease, part in zip(claim_all(each_db), parts, strict=True)
    )

    def record_second() -> None:
        with each_db.write() as session:
            leases.record(session, [second])

    other = threading.Thread(target=record_second)
    with each_db.write() as session:
        leases.record(session, [first])
        other.start()
        other.join(0.5)  # it waits for this transaction
    other.join()
    with each_db.read() as session:
        row = jobs.items(session, job)[0]
        assert (row.state, row.reward, row.failed_verdicts) == ("done", 1.0, 0)


def test_retry_clears_the_reward_and_the_verdicts_shown_with_it(db: Database) -> None:
    job = submit_job(db, 1, judge=JUDGE, rubric=RUBRIC.model_copy(update={"min_coverage": 0.5}))
    (lease,) = claim_all(db)
    part = RUBRIC.model_copy(update={"min_coverage": 0.5})
    with db.write() as session:
        leases.record(session, [replace(outcome(lease, fails=True), rubric=part)])
        assert jobs.items(session, job)[0].reward == 1.0
    with db.write() as session:
        jobs.retry(session, job)
        jobs.cancel(session, job)
    with db.read() as session:
        (item,) = jobs.items(session, job)
        assert (item.reward, completions.verdicts_of_items(session, [item.id])) == (None, {})


def test_claim_does_not_wait_for_a_job_that_is_being_cancelled(each_db: Database) -> None:
    if each_db.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    job = submit_job(each_db, 2, judge=JUDGE)
    claimed: list[list[Lease]] = []
    claiming = threading.Thread(target=lambda: claimed.append(claim_all(each_db)))
    with each_db.write() as session:
        session.execute(select(JobRow.id).where(JobRow.id == job).with_for_update())
        claiming.start()
        claiming.join(20)
        assert len(claimed) == 1, "waits for the job while it holds the items"
    claiming.join()
