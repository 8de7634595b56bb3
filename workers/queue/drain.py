"""Claim, work, record: a drain works on the pending items of one judge, whatever their kind (`work`).

It has as many leases in flight as the judge takes concurrent calls, and claims more when half a claim is free, so that
one slow completion delays no other. Of few items it claims its share, and the other workers theirs. Results are
recorded in bulk. A heartbeat renews the leases and cancels the calls of lost ones (a cancelled job).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.synchronize import Event
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from structlog import get_logger
from structlog.contextvars import bound_contextvars

from rubricsvc.broker import MEMORY
from rubricsvc.core.judge import Judge
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import Settings
from rubricsvc.store import budgets, jobs, judges, leases
from rubricsvc.store.leases import Lease
from rubricsvc.store.session import AWAY, Database
from workers.engines.base import Engine
from workers.engines.budget import current_budget
from workers.queue.costs import JobBudget
from workers.queue.engine_pool import DrainEngines, EnginePool
from workers.queue.reconciler import NAME
from workers.queue.work import ItemWork, Result, WorkLoader

log = get_logger(__name__)
T = TypeVar("T")

FLUSH_SECONDS = 0.2
GRACE_SECONDS = 5.0


class Drainer:
    """Scores the items of judges.

    Args:
        stopping: When set, nothing more is claimed, and unfinished items are released after a short grace.
        engines: The process's engines; without it each drain makes its own.

    Attributes:
        worker: Names the leases and reservations of this drain: the name of the worker, and a part of its own, since
            reservations of two drains of one job are apart.
    """

    def __init__(
        self,
        db: Database,
        settings: Settings,
        stopping: threading.Event | Event | None = None,
        engines: EnginePool | None = None,
    ) -> None:
        self.db = db
        self.settings = settings
        self.stopping = stopping or threading.Event()
        self.engines = engines
        self.worker = f"{NAME}/{uuid.uuid4().hex[:6]}"
        self.loader = WorkLoader(db, settings)

    def run(self, judge_id: int) -> bool:
        """Score until no item is pending; return False if the time was up or a stop was requested first.

        If what is stored of the judge is not valid any more, its items fail.
        """
        with self.db.read() as session:
            row = judges.get(session, judge_id)
        if (judge := row.valid) is None:
            return self._fail_items(judge_id, f"its judge cannot be read: {row.error}")
        with bound_contextvars(worker=self.worker, judge=judge.name):
            engines = self.engines or EnginePool()
            try:
                return engines.run(judge, lambda engine: _Drain(self, judge_id, judge, engine).work())
            finally:
                if engines is not self.engines:
                    engines.close()

    def _fail_items(self, judge_id: int, reason: str) -> bool:
        log.error("items fail", worker=self.worker, judge_id=judge_id, reason=reason)
        claim = partial(leases.claim, limit=self.settings.claim_size, seconds=self.settings.lease_seconds)
        while not self.stopping.is_set():
            with self.db.write() as session:
                taken = claim(session, judge_id, worker=self.worker)
                leases.fail(session, taken, reason)
            if not taken:
                return True
            with self.db.write() as session:
                jobs.finish(session, {lease.job_id for lease in taken})
        return False


class _Drain:
    """One drain and its leases in flight."""

    def __init__(self, drainer: Drainer, judge_id: int, judge: Judge, engine: Engine) -> None:
        self.drainer, self.judge_id, self.judge = drainer, judge_id, judge
        self.engines = DrainEngines(judge, engine)
        self.db, self.settings = drainer.db, drainer.settings
        self.in_flight: dict[asyncio.Task[Result], Lease] = {}
        self.finished: list[Result] = []
        self.budgets: dict[tuple[int, bool], JobBudget] = {}
        self.flushed_at = time.monotonic()
        self.capacity = max(self.settings.claim_size, *(leaf.endpoint.concurrency for leaf in judge.leaf_judges))

    async def work(self) -> bool:
        until = time.monotonic() + self.settings.drain_seconds
        heartbeat = asyncio.create_task(self._heartbeat())
        none_left = False
        try:
            while not (stopping := self.drainer.stopping.is_set()):
                in_time = time.monotonic() < until  # then nothing new is started
                none_left = in_time and await self._fill()
                if not self.in_flight:
                    break
                await self._collect(timeout=self.settings.heartbeat_seconds)
            until = time.monotonic() + GRACE_SECONDS
            while stopping and self.in_flight and (left := until - time.monotonic()) > 0:
                await self._collect(timeout=left)
            await self._flush()
            return none_left and not stopping
        finally:
            heartbeat.cancel()
            await asyncio.gather(heartbeat, return_exceptions=True)
            await self._release_unfinished()
            await self.engines.aclose()

    async def _fill(self) -> bool:
        """Claim items while there is room for half a claim; return whether none is pending.

        After a share that is smaller than the room, other workers have time for theirs until the next result.
        """
        size = self.settings.claim_size
        while (room := self.capacity - len(self.in_flight)) >= max(1, size // 2):
            wanted = min(size, room)
            claimed = await self._claim(wanted)
            if claimed < wanted and (self.in_flight or not claimed):
                return not claimed
        return False

    async def _claim(self, limit: int) -> int:
        """Claim up to ``limit`` items and start work on them; return how many were claimed."""

        def take(session: Session) -> tuple[int, list[ItemWork], dict[int, bool]]:
            """Return also whether each job has a budget, where its work has a price."""
            share = limit
            if not self.settings.broker_url.startswith(MEMORY):  # it wakes no worker of another process
                share = leases.fair_share(session, self.judge_id, limit=limit, held=len(self.in_flight))
            taken = leases.claim(
                session,
                self.judge_id,
                limit=share,
                worker=self.drainer.worker,
                seconds=self.settings.lease_seconds,
                whole_groups=self.judge.mode == "comparative",
            )
            work = self.drainer.loader.load(session, self.judge, taken)
            priced = {one.lease.job_id for one in work if one.priced}
            return len(taken), work, budgets.capped(session, priced) if priced else {}

        async def run(work: ItemWork, budget: JobBudget | None) -> Result:
            current_budget.set(budget)  # for this task and its children
            with bound_contextvars(job_id=work.lease.job_id, item_id=work.lease.item_id):
                return await work.run(self.engines, self._write)

        claimed, work, capped = await self._write(take)
        for one in work:
            budget = None
            if (has_limit := capped.get(one.lease.job_id)) is not None:
                fresh = JobBudget(one.lease.job_id, self._write, worker=self.drainer.worker, capped=has_limit)
                budget = self.budgets.setdefault((one.lease.job_id, has_limit), fresh)
                budget.reopen()
            self.in_flight[asyncio.create_task(run(one, budget))] = one.lease
        return claimed

    async def _collect(self, timeout: float) -> None:
        """Wait for results; record them when there are enough or `FLUSH_SECONDS` have passed."""
        done, _ = await asyncio.wait(self.in_flight, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            lease = self.in_flight.pop(task)
            if task.cancelled():
                log.info("lease lost or job cancelled", item_id=lease.item_id)
            else:
                self.finished.append(task.result())
        waited = time.monotonic() - self.flushed_at
        if len(self.finished) >= self.settings.claim_size or waited > FLUSH_SECONDS or not self.in_flight:
            await self._flush()

    async def _flush(self) -> None:
        results, self.finished = self.finished, []
        self.flushed_at = time.monotonic()
        try:
            for budget in list(self.budgets.values()):
                await budget.flush()  # other workers may wait for the money
            written = await self._record_all(results) if results else []
        except AWAY:
            self.finished = results + self.finished  # released with the rest
            raise
        if len(written) < len(results):
            log.warning("results dropped: their leases were lost", count=len(results) - len(written))

    async def _record_all(self, results: Sequence[Result]) -> list[int]:
        """Record results together, or one by one if that fails; return the items that were recorded or failed."""
        try:
            written, repaired = await self._write(lambda session: self.drainer.loader.record(session, results))
            job_ids = {result.lease.job_id for result in results} | repaired
            await self._write(lambda session: jobs.finish(session, job_ids))
            return written
        except AWAY:
            raise
        except Exception as error:
            log.exception("results cannot be recorded", count=len(results))
            reason = f"the result cannot be recorded: {type(error).__name__}: {getattr(error, 'orig', error)}"
        if len(results) > 1:
            return [id_ for result in results for id_ in await self._record_all([result])]
        lease = results[0].lease
        await self._write(lambda session: leases.fail(session, [lease], reason))
        await self._write(lambda session: jobs.finish(session, [lease.job_id]))
        return [lease.item_id]

    async def _release_unfinished(self) -> None:
        """Cancel what is in flight and release its leases."""
        unfinished = self._leases()
        for task in self.in_flight:
            task.cancel()
        await asyncio.gather(*self.in_flight, return_exceptions=True)
        with contextlib.suppress(SQLAlchemyError, UnavailableError):
            for budget in list(self.budgets.values()):
                await budget.flush()
        if unfinished:
            with contextlib.suppress(SQLAlchemyError, UnavailableError):
                await self._write(lambda session: leases.release(session, unfinished))

    def _leases(self) -> list[Lease]:
        return [*self.in_flight.values(), *(result.lease for result in self.finished)]

    async def _heartbeat(self) -> None:
        def renew(ours: Sequence[Lease]) -> None:
            with self.db.write() as session:
                leases.renew(session, ours, seconds=self.settings.lease_seconds)

        def still_held(ours: Sequence[Lease]) -> set[int]:
            with self.db.read() as session:
                return leases.held(session, ours)

        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(self.settings.heartbeat_seconds)
            if not (ours := self._leases()):
                continue
            try:
                if time.monotonic() - renewed_at > self.settings.lease_seconds / 3:
                    await asyncio.to_thread(renew, ours)
                    renewed_at = time.monotonic()
                held = await asyncio.to_thread(still_held, ours)
            except (SQLAlchemyError, UnavailableError) as error:
                log.warning("heartbeat missed", error=str(error))
                continue
            for task, lease in list(self.in_flight.items()):
                if lease in ours and lease.item_id not in held:
                    task.cancel()

    async def _write(self, step: Callable[[Session], T]) -> T:
        """Run a step in a transaction, in a thread; retry while the database is unreachable or its disk is full.

        Until the leases that we hold expire anyway, or for a short grace if a stop was requested.
        """

        def whole() -> T:
            with self.db.write() as session:
                return step(session)

        pause, began = 0.5, time.monotonic()
        while True:
            try:
                return await asyncio.to_thread(whole)
            except AWAY as error:
                limit = GRACE_SECONDS if self.drainer.stopping.is_set() else self.settings.lease_seconds
                if time.monotonic() + pause > began + limit:
                    raise
                log.warning("database unavailable, trying again", error=str(error), in_seconds=pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
