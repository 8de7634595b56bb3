"""What is said about a job, and what saying it costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Usage, Verdict
from rubricsvc.store import jobs, leases
from rubricsvc.store.session import Database
from tests.rows import RUBRIC, item_result, submit_job

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
        assert jobs.budget_message(session, job) == "no $2 left"
    assert (found.rewards, found.vetoed, found.reasons) == (2, {"c1": 1}, {"budget": 1})
