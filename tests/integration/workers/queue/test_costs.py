"""Workers reserve, pay, fall silent, come back and are killed, in any order: a job's money against a model of it."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Endpoint, Judge, Price
from rubricsvc.errors import InvalidError
from rubricsvc.store import jobs, leases
from rubricsvc.store.leases import Lease
from rubricsvc.store.session import Database
from rubricsvc.store.tables import ReservationRow
from tests.databases import fresh_url
from tests.rows import submit_job
from workers.queue.costs import JobBudget

JUDGE = Judge(name="paid", model="m", endpoint=Endpoint(price=Price()))
ROUNDING = 1e-7
NUMBERS = st.integers(0, 2)


@dataclass
class Worker:
    """``calls`` are the worst cases of those under way; ``unwritten`` was spent since the last write."""

    name: str
    db: Database
    job: int
    leases: list[Lease]
    calls: list[float] = field(default_factory=list)
    unwritten: float = 0.0

    def __post_init__(self) -> None:
        self.budget = JobBudget(self.job, self._write, worker=self.name, capped=True)

    async def _write(self, step: Callable[[Session], Any]) -> Any:
        self.unwritten = 0.0
        with self.db.write() as session:
            return step(session)

    def settle(self, worst: float, spent: float) -> None:
        self.budget.settle(worst, spent)
        self.unwritten += spent


class Money(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rubricsvc-money-"))
        self.db = Database(fresh_url("sqlite", self.folder))
        self.loop = asyncio.new_event_loop()
        self.clock = 1000.0
        self.patch = patch.object(leases, "database_time", lambda _session: self.clock)
        self.patch.start()
        self.job = submit_job(self.db, 100, judge=JUDGE)
        self.names = 0
        self.paid = 0.0  # for calls that have ended
        self.unknown = 0.0  # what the dead may have spent and never told
        self.lost = 0.0  # what the dead had reserved
        self.workers: list[Worker] = []
        self.retry(1.0)
        self._hire()

    def _hire(self) -> None:
        """Three workers, with a lease each."""
        while len(self.workers) < 3:
            self.names += 1
            name = f"w{self.names}"
            with self.db.write() as session:
                taken = leases.claim(session, 1, limit=1, worker=name, seconds=50)
            self.workers.append(Worker(name, self.db, self.job, taken))

    @rule(
        number=NUMBERS,
        ends=st.lists(st.sampled_from([0.0, 0.2, 1.0]), max_size=4),
        flush=st.booleans(),
        begins=st.lists(st.sampled_from([0.01, 0.07, 0.3]), max_size=4),
    )
    def work(self, number: int, ends: list[float], flush: bool, begins: list[float]) -> None:
        """Some calls end, at a share of their worst, and others begin."""
        worker = self.workers[number]
        for share in ends[: len(worker.calls)]:
            worst = worker.calls.pop()
            worker.settle(worst, worst * share)
            self.paid += worst * share
        if flush:
            self.loop.run_until_complete(worker.budget.flush())
        worker.budget.over = False
        for worst in begins:
            if self.loop.run_until_complete(self._granted(worker.budget, worst)):
                worker.calls.append(worst)

    async def _granted(self, budget: JobBudget, worst: float) -> bool:
        """Whether a call may be made; not where it would have to wait for others."""
        asked = asyncio.create_task(budget.reserve(worst))
        for _ in range(30):
            await asyncio.sleep(0)
        if asked.done():
            return asked.result()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        return False

    @rule(number=NUMBERS)
    def kill(self, number: int) -> None:
        worker = self.workers.pop(number)
        self.paid -= worker.unwritten
        self.unknown += worker.unwritten + sum(worker.calls)
        with self.db.read() as session:
            row = session.get(ReservationRow, (self.job, worker.name))
            self.lost += row.dollars if row else 0.0
        self._hire()

    @rule(silent=st.booleans())
    def reconcile(self, silent: bool) -> None:
        """The leases of the dead run out, and, where they were ``silent``, those of the others."""
        self.clock += 40
        with self.db.write() as session:
            for worker in self.workers if not silent else ():
                leases.held(session, worker.leases, extended_by=90)
        self.clock += 40
        with self.db.write() as session:
            leases.reconcile(session, max_leases=1000)
        with self.db.read() as session:
            orphaned = jobs.orphaned_jobs(session)
        for job_id in orphaned:
            with self.db.write() as session:
                jobs.write_off(session, job_id)
        if silent:
            assert self._told()[1] == 0

    @rule(more=st.sampled_from([0.053, 0.503, 2.003]))
    def retry(self, more: float) -> None:
        """With ``more`` than is spent; refused where that much is under way."""
        spent, held, _ = self._told()
        with self.db.write() as session, pytest.raises(InvalidError) if more <= held else nullcontext():
            jobs.retry(session, self.job, budget=spent + more)

    @rule()
    def all_leave(self) -> None:
        """They end their calls: what was not lost with the dead is known to the cent."""
        for worker in self.workers:
            for worst in worker.calls:
                worker.settle(worst, worst)
            self.paid += sum(worker.calls)
            self.loop.run_until_complete(worker.budget.flush())
            with self.db.write() as session:
                leases.release(session, worker.leases)
        self.workers = []
        spent, held, _ = self._told()
        assert spent + held == pytest.approx(self.paid + self.lost, abs=ROUNDING)
        self._hire()

    def _told(self) -> tuple[float, float, float]:
        """What is spent, what is reserved, and the budget."""
        with self.db.read() as session:
            job = jobs.get(session, self.job)
            return job.spent, jobs.reserved_totals(session, self.job).held, job.budget or 0.0

    @invariant()
    def cap_holds(self) -> None:
        if not hasattr(self, "job"):
            return
        spent, held, budget = self._told()
        under_way = sum(sum(worker.calls) for worker in self.workers)
        assert self.paid + self.unknown + under_way <= spent + held + ROUNDING
        assert spent + held <= budget + ROUNDING

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.patch.stop()
            self.loop.close()
            self.db.close()
            shutil.rmtree(self.folder)


Money.TestCase.settings = settings(
    max_examples=settings.default.max_examples // 4, stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
test_money_agrees_with_its_model = Money.TestCase
