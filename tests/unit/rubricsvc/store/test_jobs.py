"""What is said about a job, and what saying it costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from rubricsvc.core.judge import Judge
from rubricsvc.core.verdict import Evidence, Usage, Verdict
from rubricsvc.store import items, jobs, leases, workers
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


def record_one(db: Database, first: dict[str, object], others: dict[str, object] | None = None) -> None:
    with db.write() as session:
        (lease,) = leases.claim(session, 1, limit=1, worker="w", seconds=60)
        fields = (first, *[others or {}] * (len(RUBRIC.criteria) - 1))
        each = zip(RUBRIC.criteria, fields, strict=True)
        leases.record(session, [item_result(lease, RUBRIC, [Verdict.scored(c.key, 0.5, **f) for c, f in each])])


@pytest.mark.parametrize(
    ("cached", "share"), [((None, None), None), ((0, 0), 0.0), ((50, None), 0.5), ((50, 0), round(50 / 300, 4))]
)
def test_summary_leaves_out_uncounted_cached_tokens(
    each_db: Database, cached: tuple[int | None, int | None], share: float | None
) -> None:
    job = submit_job(each_db, 1, judge=JUDGE)
    record_one(each_db, *({"usage": Usage(prompt=100, cached=number, completion=1)} for number in cached))
    with each_db.read() as session:
        assert jobs.summary(session, job).cached_share == share


def test_summary_counts_quotes(each_db: Database) -> None:
    job = submit_job(each_db, 2, judge=JUDGE)
    there, missing = Evidence(quote="a", start=0, end=1), Evidence(quote="never said")
    record_one(each_db, {"evidence": (there, missing)}, {"evidence": (missing,)})
    record_one(each_db, {"evidence": ()})
    with each_db.read() as session:
        found = jobs.summary(session, job)
    others = len(RUBRIC.criteria) - 1
    assert (found.quotes, found.quotes_not_found) == (2 + others, 1 + others)


def test_progress_of_counts_several_jobs_in_one_query(db: Database) -> None:
    ids = [submit_job(db, count, judge=JUDGE) for count in (3, 2)]
    record_two(db)
    with plans(db) as found, db.read() as session:
        by_job = jobs.progress_of(session, ids)
    assert found == ["SEARCH items USING INDEX ix_items_job (job_id=?)"]
    assert [(one.total, one.done, one.failed) for one in by_job.values()] == [(3, 1, 1), (2, 0, 0)]


def test_outcomes_count_items_and_name_rubrics(each_db: Database) -> None:
    job = submit_job(each_db, 3, judge=JUDGE)
    record_two(each_db)
    with each_db.read() as session:
        (outcome,) = jobs.outcomes(session, [job]).values()
        assert jobs.outcomes(session, []) == {}
    assert (outcome.finished, outcome.total, outcome.mean_reward) == (2, 3, pytest.approx(0.5))
    assert [name.endswith("@1") for name in outcome.rubrics] == [True]


def test_progress_reads_items_by_index(db: Database) -> None:
    job = submit_job(db, 3, judge=JUDGE)
    with plans(db) as found, db.read() as session:
        jobs.progress(session, job)
    assert found == ["SEARCH items USING INDEX ix_items_job (job_id=?)"]


def test_results_read_a_page_by_index(db: Database) -> None:
    """Without sorting all items of the job for each page."""
    job = submit_job(db, 3, judge=JUDGE)
    with plans(db) as found, db.read() as session:
        items.page(session, job, after=1, limit=2)
    assert found == ["SEARCH items USING INDEX ix_items_page (job_id=? AND id>?)"]


def test_queue_counts_in_a_covering_index(db: Database) -> None:
    submit_job(db, 3, judge=JUDGE)
    with plans(db) as found, db.read() as session:
        assert workers.queue(session).items == {("test", "pending"): 3, ("test", "leased"): 0}
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
