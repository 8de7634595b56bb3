"""Items in the order of their rewards."""

from __future__ import annotations

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.states import ItemSort
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import NotFoundError
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import Database
from tests.rows import RUBRIC, item_result, submit_job

VALUES = (0.5, None, 0.0, 0.5, 1.0, None)


@pytest.fixture
def job(each_db: Database) -> int:
    """A job with these rewards, and one item that is still pending; another job has the same completions."""
    first = submit_job(each_db, 7, judge=Judge(name="test", model="m"))
    submit_job(each_db, 7, judge=Judge(name="test", model="m"), key="other")
    with each_db.write() as session:
        claimed = leases.claim(session, 1, limit=len(VALUES), worker="w", seconds=60)
        for lease, value in zip(claimed, VALUES, strict=True):
            verdicts = [
                Verdict.failed(criterion.key, "timeout") if value is None else Verdict.scored(criterion.key, value)
                for criterion in RUBRIC.criteria
            ]
            leases.record(session, [item_result(lease, RUBRIC, verdicts)])
    return first


@pytest.mark.parametrize(
    ("sort", "order"),
    [("id", [1, 2, 3, 4, 5, 6, 7]), ("reward", [3, 1, 4, 5, 2, 6, 7]), ("-reward", [5, 1, 4, 3, 2, 6, 7])],
)
def test_page_follows_each_order(each_db: Database, job: int, sort: ItemSort, order: list[int]) -> None:
    """Ties keep the order of ids, and items without a reward are last."""
    for limit in (1, 3, 100):
        seen: list[int] = []
        with each_db.read() as session:
            while rows := jobs.items(session, job, sort=sort, after=seen[-1] if seen else 0, limit=limit):
                seen += [row.id for row in rows]
        assert seen == order


def test_page_filters_by_policy_and_reward(each_db: Database, job: int) -> None:
    with each_db.read() as session:
        assert [row.id for row in jobs.items(session, job, rewarded=False)] == [2, 6, 7]
        assert [row.id for row in jobs.items(session, job, rewarded=True, sort="-reward", limit=1)] == [5]
        assert len(jobs.items(session, job, policy="")) == 7
        assert jobs.items(session, job, policy="mine") == []


def test_page_after_an_item_of_another_job_is_an_error(each_db: Database, job: int) -> None:
    with each_db.read() as session, pytest.raises(NotFoundError):
        jobs.items(session, job, sort="reward", after=8)


def test_unrewarded_counts_items_without_a_reward(each_db: Database, job: int) -> None:
    with each_db.read() as session:
        counted, _ = jobs.unrewarded(session, job)
    assert list(counted.values()) == [2, 1] and list(counted)[1] == "pending"
