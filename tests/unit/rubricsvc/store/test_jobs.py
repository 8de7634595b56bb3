"""Jobs, what is said about them, and their items in the order of their rewards."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from rubricsvc.core.judge import Judge
from rubricsvc.core.states import ItemSort
from rubricsvc.core.verdict import Usage, Verdict
from rubricsvc.errors import NotFoundError
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import Database
from tests.rows import RUBRIC, item_result, record_values, submit_job

JUDGE = Judge(name="test", engine="test", model="none")


def record_two(db: Database) -> None:
    """Results for the first two items: six verdicts, of which one failed; each read 100 tokens, 90 from the cache."""
    usage = Usage(prompt=100, cached=90, completion=1)
    with db.write() as session:
        first, second = leases.claim(session, 1, limit=2, worker="w", seconds=60)
        good = [Verdict.scored(criterion.key, 0.5, usage=usage) for criterion in RUBRIC.criteria]
        bad = [*good[:2], Verdict.failed("c3", "timeout")]
        leases.record(session, [item_result(first, RUBRIC, good), item_result(second, RUBRIC, bad)])


def test_summary_sums_rewards_failures_and_tokens(each_db: Database) -> None:
    job = submit_job(each_db, 3, judge=JUDGE)
    with each_db.read() as session:
        nothing = jobs.summary(session, job)
    assert (nothing.rewards, nothing.mean_reward, nothing.cached_share) == (0, None, None)
    record_two(each_db)
    with each_db.read() as session:
        found, progress = jobs.summary(session, job), jobs.progress(session, job)
    assert (found.rewards, found.mean_reward, found.reasons) == (1, pytest.approx(0.5), {"timeout": 1})
    assert found.cached_share == 0.9
    assert (progress.total, progress.pending, progress.done, progress.failed) == (3, 1, 1, 1)
    assert (progress.verdicts, progress.failed_verdicts) == (5, 1)
    assert (found.quotes, found.quotes_not_found) == (None, None)


def test_queue_counts_in_a_covering_index(db: Database) -> None:
    submit_job(db, 3, judge=JUDGE)
    with plans(db) as found, db.read() as session:
        assert leases.queue(session).items == {("test", "pending"): 3, ("test", "leased"): 0}
    of_items = [plan for plan in found if "items" in plan]
    assert of_items == ["SEARCH items USING COVERING INDEX ix_items_claim (judge_id=? AND state=?)"]


@contextmanager
def plans(db: Database) -> Iterator[list[str]]:
    """How SQLite goes about the tables in every SELECT of the block."""
    asked: list[tuple[str, object]] = []
    found: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        asked.append((statement, parameters))

    event.listen(db.engine, "before_cursor_execute", note)
    yield found
    event.remove(db.engine, "before_cursor_execute", note)
    with db.engine.connect() as connection:
        for statement, parameters in asked:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()  # type: ignore[call-overload]
            found += [row.detail for row in rows if "items" in row.detail or "verdicts" in row.detail]


def test_summary_counts_vetoes_and_budget_failures(each_db: Database) -> None:
    first, *others = RUBRIC.criteria
    strict = RUBRIC.model_copy(update={"criteria": (first.model_copy(update={"required": True}), *others)})
    job = submit_job(each_db, 3, judge=JUDGE, rubric=strict)
    with each_db.write() as session:
        leased = leases.claim(session, 1, limit=3, worker="w", seconds=60)
        given = [[Verdict.scored(one.key, value) for one in strict.criteria] for value in (0.4, 0.6)]
        poor = [*given[1][:2], Verdict.failed("c3", "budget", detail="no $2 left")]
        both = zip(leased, [*given, poor], strict=True)
        leases.record(session, [item_result(lease, strict, verdicts) for lease, verdicts in both])
    with each_db.read() as session:
        found = jobs.summary(session, job)
    assert (found.rewards, found.vetoed, found.reasons) == (2, {"c1": 1}, {"budget": 1})


VALUES = (0.5, None, 0.0, 0.5, 1.0, None)


@pytest.fixture
def job(each_db: Database) -> int:
    """A job with these rewards, and one item that is still pending; another job has the same completions."""
    first = submit_job(each_db, 7, judge=JUDGE)
    submit_job(each_db, 7, judge=JUDGE, key="other")
    record_values(each_db, VALUES)
    return first


def test_items_follow_each_order_and_filter_by_reward(each_db: Database, job: int) -> None:
    """Ties keep the order of ids, and items without a reward are last."""
    orders: dict[ItemSort, list[int]] = {"id": [1, 2, 3, 4, 5, 6, 7], "reward": [3, 1, 4, 5, 2, 6, 7]}
    orders["-reward"] = [5, 1, 4, 3, 2, 6, 7]
    with each_db.read() as session:
        for sort, order in orders.items():
            for limit in (1, 3, 100):
                seen: list[int] = []
                while rows := jobs.items(session, job, sort=sort, after=seen[-1] if seen else 0, limit=limit):
                    seen += [row.id for row in rows]
                assert seen == order
        assert [row.id for row in jobs.items(session, job, rewarded=False)] == [2, 6, 7]
        assert [row.id for row in jobs.items(session, job, rewarded=True, sort="-reward", limit=1)] == [5]
        counted = jobs.unrewarded(session, job)
        assert list(counted.values()) == [2, 1] and list(counted)[1] == "pending"
        with pytest.raises(NotFoundError):  # of another job
            jobs.items(session, job, sort="reward", after=8)
