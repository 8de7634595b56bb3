"""Jobs with a budget, against a server that counts what it is asked: the cap holds, and what is left undone is told."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.orm import Session

from rubricsvc.core.judge import FREE, Endpoint, Judge, Price, Sampling
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Usage
from rubricsvc.errors import InvalidError
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges, leases
from rubricsvc.store.session import Database
from rubricsvc.store.tables import JobRow
from tests.rows import submit_job
from tests.scripted_server import ScriptedReply, ScriptedServer, error, labels, scripted_server
from workers.engines import ENGINES
from workers.queue import app
from workers.queue.costs import JobBudget
from workers.queue.drain import Drainer

PRICE = Price(prompt=10.0, completion=40.0)
COST = (100 * 10.0 + 1 * 40.0) / 1e6
"""Of one verdict of `YES`. A whole item has three."""

YES = replace(labels(Yes=0.9, No=0.1), usage={"prompt_tokens": 100, "completion_tokens": 1})

PAID = Judge(name="paid", model="m", endpoint=Endpoint(price=PRICE))


def judge_at(server: ScriptedServer, **endpoint: Any) -> Judge:
    reached = Endpoint(base_url=server.url, price=PRICE, **{"max_retries": 0, "concurrency": 4} | endpoint)
    return Judge(name="paid", model="scripted", endpoint=reached)


def drain(db: Database, times: int = 1) -> None:
    """So many workers on judge 1, until it has nothing more to do."""
    settings = Settings(database_url=db.url, claim_size=4, heartbeat_seconds=0.1)
    threads = [threading.Thread(target=lambda: Drainer(db, settings).run(1)) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def set_budget(db: Database, job: int, budget: float) -> None:
    with db.write() as session:
        jobs.get(session, job).budget = budget


def take(session: Session, job: int, dollars: float, worker: str = "other") -> jobs.Grant:
    """What ``worker`` reserves, who had nothing."""
    return jobs.reserve(session, job, worker, spent=0, held=0, least=dollars, most=dollars)


def held(db: Database, job: int) -> float:
    """Dollars that are reserved."""
    with db.read() as session:
        return jobs.reserved_totals(session, job).held


def row(db: Database, job: int) -> JobRow:
    with db.read() as session:
        return jobs.get(session, job)


def worst(server: ScriptedServer) -> float:
    """Of the dearest call: a byte a token, and what a template may add."""
    texts = max(sum(len(message["content"]) for message in body["messages"]) for body in server.requests)
    return PRICE.cost(Usage(prompt=texts + 300, completion=1))


@pytest.mark.parametrize("workers", [1, 3])
def test_budget_stops_job_below_its_limit(each_db: Database, workers: int) -> None:
    with scripted_server(replace(YES, delay_s=0.01)) as server:
        job = submit_job(each_db, 100, judge=judge_at(server))
        cap = 60 * COST
        set_budget(each_db, job, cap)
        drain(each_db, workers)
        after = row(each_db, job)
        assert after.status == "budget_exhausted"
        assert after.spent == pytest.approx(server.count * COST)
        assert cap - 5 * worst(server) < after.spent <= cap
        assert held(each_db, job) == 0
    with each_db.read() as session:
        progress = jobs.progress(session, job)
        found = {item.null_reason for item in jobs.items(session, job) if item.state == "cancelled"}
        failed = {str(verdict.reason) for verdict in completions.verdict_page(session, outcome="failed")}
    assert progress.done > 0 and progress.cancelled > 50 and not progress.pending and not progress.leased
    assert [str(reason).partition(":")[0] for reason in found] == ["budget"]
    assert failed <= {"budget"}


def replied(number: int, body: dict[str, Any]) -> ScriptedReply:
    """Yes, sooner or later; one call in eleven fails once."""
    if number % 11 == 5:
        return error(503)
    if body.get("logprobs"):
        return replace(YES, delay_s=0.002 * (number % 5))
    return ScriptedReply('{"rationale": "so", "verdict": "met"}', usage=YES.usage, delay_s=0.002 * (number % 5))


@pytest.mark.parametrize(("kind", "calls"), [("readout", 8), ("written", 8), ("panel", 16)])
def test_budget_finishes_completions_that_are_begun(db: Database, kind: str, calls: int) -> None:
    rubric = Rubric(criteria=tuple(Criterion(key=f"c{n}", text=f"Says {n}.") for n in range(8)))
    with scripted_server(replied) as server:
        judge = judge_at(server, concurrency=16, max_retries=3)
        if kind == "written":
            judge = judge.model_copy(update={"mode": "written", "sampling": Sampling(max_tokens=50)})
        elif kind == "panel":
            judge = Judge(name="p", mode="panel", members=(judge, judge.model_copy(update={"name": "other"})))
        job = submit_job(db, 40, judge=judge, rubric=rubric)
        set_budget(db, job, 20 * calls * COST)
        drain(db)
        after = row(db, job)
    with db.read() as session:
        rewards = jobs.progress(session, job).done
        scored = sum(one.verdict.value is not None for one in completions.verdict_page(session, limit=1000))
    assert after.status == "budget_exhausted"
    assert 18 <= rewards <= 20 and 8 * rewards <= scored < 8 * (rewards + 1)
    assert after.spent <= min(20, rewards + 1) * calls * COST


def test_retry_continues_with_larger_budget(each_db: Database) -> None:
    with scripted_server(YES) as server:
        job = submit_job(each_db, 20, judge=judge_at(server))
        set_budget(each_db, job, 30 * COST)
        drain(each_db)
        asked = server.count
        with each_db.write() as session, pytest.raises(InvalidError, match=r"\$") as caught:
            jobs.retry(session, job)
        assert "--budget" in caught.value.hint
        with each_db.write() as session, pytest.raises(InvalidError, match=r"\$"):
            jobs.retry(session, job, budget=asked * COST / 2)
        with each_db.write() as session:
            assert jobs.retry(session, job, budget=1.0) > 0
        drain(each_db)
        assert server.count == 60  # nothing was asked twice
    assert (row(each_db, job).status, row(each_db, job).spent) == ("completed", pytest.approx(60 * COST))


def test_spending_is_counted_without_budget(db: Database) -> None:
    with scripted_server(YES) as server:
        job = submit_job(db, 5, judge=judge_at(server))
        drain(db)
    assert (row(db, job).status, row(db, job).spent) == ("completed", pytest.approx(15 * COST))
    assert held(db, job) == 0
    with db.read() as session:
        costs = [found.verdict.usage.cost for found in completions.verdict_page(session) if found.verdict.usage]
    assert costs == pytest.approx([COST] * 15)


def test_cancelled_job_counts_calls_under_way(db: Database) -> None:
    with scripted_server(replace(YES, delay_s=600)) as server:
        job = submit_job(db, 8, judge=judge_at(server))
        set_budget(db, job, 1.0)
        thread = threading.Thread(target=drain, args=(db,))
        thread.start()
        while server.count < 4:
            time.sleep(0.01)
        with db.write() as session:
            jobs.cancel(session, job)
        thread.join(20)
        assert not thread.is_alive()
        after = row(db, job)
        assert 4 * COST < after.spent <= 4 * worst(server)
        assert held(db, job) == 0


def kill(db: Database, job: int, dollars: float, *, worker: str = "killed") -> None:
    """A worker takes a lease and so much money, and is never heard of again: its lease runs out."""
    with db.write() as session:
        assert leases.claim(session, 1, limit=1, worker=worker, seconds=-1.0)
        assert take(session, job, dollars, worker).granted == pytest.approx(dollars)


def reconcile(db: Database) -> None:
    settings = Settings(database_url=db.url)
    app.reconcile(db, app.make_app(settings, db), settings)


def test_reservations_of_killed_worker_count_as_spent(each_db: Database) -> None:
    with scripted_server(YES) as server:
        job = submit_job(each_db, 20, judge=judge_at(server))
        set_budget(each_db, job, 60 * COST)
        kill(each_db, job, 30 * COST)
        assert (row(each_db, job).spent, held(each_db, job)) == (0, pytest.approx(30 * COST))
        reconcile(each_db)
        assert (row(each_db, job).spent, held(each_db, job)) == (pytest.approx(30 * COST), 0)
        drain(each_db)
        after = row(each_db, job)
        assert (after.status, after.spent) == ("budget_exhausted", pytest.approx((30 + server.count) * COST))
        with each_db.read() as session:
            reserved = jobs.summary(session, job).reserved
            assert (reserved.held, reserved.lost) == (0.0, pytest.approx(30 * COST))
        with each_db.write() as session:
            jobs.retry(session, job, budget=1.0)
        drain(each_db)
        assert server.count == 60
    assert (row(each_db, job).status, row(each_db, job).spent) == ("completed", pytest.approx(90 * COST))


def test_working_worker_keeps_its_reservation(each_db: Database) -> None:
    """A smaller budget covers the calls under way."""
    job = submit_job(each_db, 2, judge=PAID)
    set_budget(each_db, job, 1.0)
    with each_db.write() as session:
        leases.claim(session, 1, limit=1, worker="other", seconds=60)
        take(session, job, 0.4)
    reconcile(each_db)
    assert (row(each_db, job).spent, held(each_db, job)) == (0, pytest.approx(0.4))
    with each_db.write() as session, pytest.raises(InvalidError, match=r"\$0.4"):
        jobs.retry(session, job, budget=0.4)
    with each_db.write() as session:
        jobs.retry(session, job, budget=0.5)
        assert take(session, job, 0.2, "one").granted == 0


def job_budget(db: Database, job: int, worker: str) -> JobBudget:
    async def write(step: Callable[[Session], Any]) -> Any:
        with db.write() as session:
            return step(session)

    return JobBudget(job, write, worker=worker, capped=True)


def test_worker_leaves_money_for_others(each_db: Database) -> None:
    """What it reserves for calls to come might else be all, and a job would end with its budget unspent."""
    job = submit_job(each_db, 2, judge=PAID)
    set_budget(each_db, job, 1.0)

    async def run() -> None:
        job_budgets = [job_budget(each_db, job, f"w{number}") for number in range(8)]
        async with asyncio.timeout(20):
            for one in job_budgets:
                assert await one.reserve(0.05)
            for one in job_budgets:
                one.settle(0.05, 0.01)
                await one.flush()

    asyncio.run(run())
    after = row(each_db, job)
    assert (after.spent, held(each_db, job)) == (pytest.approx(0.08), 0)
    assert not after.exhausted


def test_workers_never_reserve_more_than_the_budget(each_db: Database) -> None:
    """Eight threads that take as fast as they can."""
    job = submit_job(each_db, 1, judge=PAID)
    set_budget(each_db, job, 1.0)
    holds = [0.0] * 8

    def grab(number: int) -> None:
        while True:
            with each_db.write() as session:
                had = holds[number]
                taken = jobs.reserve(session, job, f"w{number}", spent=0, held=had, least=0.003, most=0.01)
            if not taken.granted:
                return
            holds[number] += taken.granted

    threads = [threading.Thread(target=grab, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.997 < sum(holds) <= 1.0 + 1e-9
    assert held(each_db, job) == pytest.approx(sum(holds))


def test_budget_rejects_invalid_amounts(db: Database) -> None:
    for budget in [0.0, -1.0, float("nan"), float("inf")]:
        judge = Judge(name="paid", model="m", endpoint=Endpoint(price=PRICE))
        with pytest.raises(InvalidError, match="0"):
            jobs.check_budget(judge, budget)


def test_budget_requires_every_price(db: Database) -> None:
    paid = Judge(name="paid", model="m", endpoint=Endpoint(price=PRICE))
    unknown = Judge(name="unknown", model="m")
    local = [Judge(name=engine, engine=engine, model="m") for engine in FREE]
    jobs.check_budget(Judge(name="p", mode="panel", members=(paid, *local)), 1.0)
    assert set(ENGINES) >= FREE
    with db.write() as session:
        row_ = judges.add(session, Judge(name="p", mode="panel", members=(paid, unknown)))
        with pytest.raises(InvalidError, match="unknown") as caught:
            jobs.submit(session, judge_id=row_.id, items=[(1, 1)], budget=1.0)
    assert "endpoint.price" in caught.value.hint
