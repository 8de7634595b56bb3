"""Claim, work, record: a drain works on the pending items of one judge, whatever their kind.

It has as many leases in flight as the judge takes concurrent calls, and claims more when half a claim is free, so that
one slow completion delays no other. Of few items it claims its share, and the other workers theirs. Results are
recorded in bulk. A heartbeat renews the leases and cancels the calls of lost ones (a cancelled job).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from structlog import get_logger
from structlog.contextvars import bound_contextvars

from rubricsvc.broker import MEMORY
from rubricsvc.core.fingerprint import QuestionSet
from rubricsvc.core.generation import AuthoringTask, Generation, Provenance
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import APPROVED, DRAFT, ApprovalPolicy
from rubricsvc.core.validation_messages import first_error
from rubricsvc.core.verdict import Reason, Verdict
from rubricsvc.errors import RubricsvcError, UnavailableError
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import completions, generation, jobs, judges, leases, rubrics
from rubricsvc.store.completions import get_prompt
from rubricsvc.store.generation import GeneratedItem
from rubricsvc.store.leases import GenerationLease, ItemResult, Lease, ScoringLease
from rubricsvc.store.session import AWAY, Database, by_id, every, page_of
from rubricsvc.store.tables import CompletionRow, JobRow, ReplyRow
from workers.authoring.author import REPLIES, Author, GenerationError, RecordingEngine
from workers.authoring.gate import judge_of_gate, try_rubric
from workers.authoring.methods import write_rubric
from workers.engines import engine_or_failure
from workers.engines.base import Engine, error_message
from workers.engines.budget import current_budget
from workers.engines.http.throttle import Throttle
from workers.queue.costs import ItemBudget, JobBudget, Write
from workers.queue.engine_pool import EnginePool, throttles_of
from workers.scoring.completions import group_questions, score, score_group

T = TypeVar("T")

log = get_logger(__name__)

NAME = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
"""The name of this worker. A forked child has its parent's: it is a part of the same worker."""

_ENGINE_FIELDS = ("engine", "model", "revision", "adapter", "weights_sha256", "endpoint", "members")
"""Judges that are equal in these share an engine."""

EngineOf = Callable[[Judge], Engine]
"""Returns the engine of a judge in a drain."""

_PAGE = 500
"""Items that `complete_answered` claims at once."""


@dataclass(slots=True)
class GroupWork:
    """The completions of one job with the same prompt and rubric, which a comparative judge judges together.

    It is judged whole, leased or not: a verdict is relative to its group, and must not depend on how the queue was cut.
    It is judged when the first of its ``leases`` asks, and cancelled when the last has left. Where two claims share a
    group it is judged twice, and the verdicts that are recorded first stand.

    Attributes:
        members: Completions by id.
        known: Stored verdicts by completion id and criterion.
        leases: How many leases share it; each must call `verdicts` once.
    """

    judge: Judge
    rubric: Rubric
    prompt: Prompt
    members: Mapping[int, Completion]
    known: Mapping[int, Mapping[str, Verdict]]
    leases: int
    _task: asyncio.Task[list[list[Verdict]]] | None = field(default=None, init=False)

    async def verdicts(self, engine: Engine, completion_id: int) -> list[Verdict]:
        """Return the verdicts on one member."""
        if self._task is None:
            known = [self.known[id_] for id_ in self.members]
            asked = score_group(engine, self.judge, self.rubric, self.prompt, list(self.members.values()), known=known)
            self._task = asyncio.create_task(asked)
        try:
            by_member = await asyncio.shield(self._task)
        finally:
            self.leases -= 1
            if not self.leases:
                self._task.cancel()
        return by_member[list(self.members).index(completion_id)]


@dataclass(slots=True)
class ScoringWork:
    """The scoring of one completion under one rubric.

    Attributes:
        group_key: Names the completions of its job with the same rubric and prompt.
        questions: What the judge is asked.
        known: Stored verdicts by criterion; they are not asked for again.
        group: The group that the completion is judged with, for a comparative judge.
    """

    lease: ScoringLease
    judge: Judge
    group_key: leases.GroupKey
    rubric: Rubric
    prompt: Prompt
    completion: Completion
    questions: QuestionSet = field(init=False)
    known: Mapping[str, Verdict] = field(init=False)
    group: GroupWork | None = None

    async def run(self, engine_of: EngineOf, _write: Write) -> ItemResult:
        """Score the completion; every error is a failed verdict."""
        engine = engine_of(self.judge)
        try:
            if self.group is not None:
                scored = await self.group.verdicts(engine, self.lease.completion_id)
            else:
                about = self.rubric, self.prompt, self.completion
                scored = await score(engine, self.judge, *about, known=self.known)
        except Exception as error:
            log.exception("scoring failed")
            detail = error_message(error)
            keys = [criterion.key for criterion in self.rubric.criteria]
            scored = [self.known.get(key) or Verdict.failed(key, Reason.ENGINE_ERROR, detail=detail) for key in keys]
        return ItemResult(self.lease, self.rubric, self.questions, scored, frozenset(self.known))


@dataclass(slots=True)
class GenerationWork:
    """The generation of one prompt's rubric.

    Attributes:
        gate_judge: The judge that tries the rubric.
        known: Replies that were stored by an earlier worker.
        approval: Which rubrics are drafts until they are approved.
    """

    lease: GenerationLease
    judge: Judge
    gate_judge: Judge
    generation: Generation
    task: AuthoringTask
    known: Mapping[str, Mapping[str, Any]]
    approval: ApprovalPolicy

    async def run(self, engine_of: EngineOf, write: Write) -> GeneratedItem:
        """Write the rubric and try it; every error is a reason."""
        try:
            stored = self.lease.item_id, REPLIES.validate_python(self.known), write
            recording = RecordingEngine(engine_of(self.judge), self.judge, *stored)
            author = Author(recording, self.judge, self.generation, retries=self.lease.retries)
            draft = await write_rubric(author, self.task)
            findings = None
            if self.generation.gate:
                engine = RecordingEngine(engine_of(self.gate_judge), self.gate_judge, *stored)
                findings = await try_rubric(engine, self.gate_judge, self.generation, draft.rubric, self.task)
        except GenerationError as error:
            return GeneratedItem(self.lease, reason=f"{error.reason}: {error.message}")
        except Exception as error:
            log.exception("generation failed")
            return GeneratedItem(self.lease, reason=f"{Reason.ENGINE_ERROR}: {error_message(error)}")
        is_draft = self.approval != "none" or draft.rubric.examples or (findings and findings.refused_by)
        provenance = Provenance(
            method=self.generation.method,
            job_id=self.lease.job_id,
            judge=self.judge.name,
            model=self.judge.model,
            template=draft.template.name,
            template_digest=draft.template.digest,
            sampling=self.generation.sampling,
            redraws=draft.redraws,
            repairs=draft.repairs,
            sources=draft.sources,
            research=draft.research,
            raw_reply=draft.raw_reply,
            cleaned=draft.cleaned,
            gate=findings,
        )
        return GeneratedItem(self.lease, draft.rubric, provenance, DRAFT if is_draft else APPROVED)


ItemWork = ScoringWork | GenerationWork
Result = ItemResult | GeneratedItem
"""What the work on an item returns. An error of a model is a result too."""


def _prepare_groups(session: Session, judge: Judge, work: Sequence[ScoringWork]) -> None:
    """Give each lease its whole group: the completions of its job with the same prompt and rubric, leased or not."""
    leased = Counter(one.group_key for one in work)
    ids = leases.groups(session, leased)
    rows = by_id(session, CompletionRow, {id_ for members in ids.values() for id_ in members})
    groups: dict[leases.GroupKey, tuple[QuestionSet, GroupWork]] = {}
    for one in work:
        key = one.group_key
        if key not in groups:
            members = {id_: rows[id_].value for id_ in ids[key]}
            questions = group_questions(one.rubric, judge, [*members.values()])
            known = completions.known_verdicts(session, [(id_, questions) for id_ in members])
            by_member = dict(zip(members, known, strict=True))
            groups[key] = questions, GroupWork(judge, one.rubric, one.prompt, members, by_member, leased[key])
        one.questions, one.group = groups[key]
        one.known = one.group.known[one.lease.completion_id]


FLUSH_SECONDS = 0.2
GRACE_SECONDS = 5.0


class Drainer:
    """Works on the items of a judge, whatever their kind; keeps rubrics and prompts, which never change.

    Args:
        stopping: When set, nothing more is claimed, and unfinished items are released after a short grace.
        engines: The process's engines; without it each drain makes its own.

    Attributes:
        worker: Names the leases and reservations of this drain: the name of the worker, its process, and a part of its
            own, since reservations of two drains of one job are apart.
        engines: Of the judge, and of other judges that its items ask. Used in one event loop.
    """

    def __init__(
        self,
        db: Database,
        settings: Settings,
        stopping: threading.Event | Event | None = None,
        engines: EnginePool | None = None,
    ) -> None:
        self.db, self.settings, self.pool = db, settings, engines
        self.stopping = stopping or threading.Event()
        self.worker = f"{NAME}/{os.getpid()}:{uuid.uuid4().hex[:6]}"
        self.engines: list[tuple[Judge, Engine]] = []
        self.in_flight: dict[asyncio.Task[Result], Lease] = {}
        self.finished: list[Result] = []
        self.budgets: dict[tuple[int, bool], JobBudget] = {}
        self.flushed_at, self.priced, self.concurrency = time.monotonic(), False, 1
        self.starting = True  # until the first heartbeat: then the drains that began with this one have their parts
        self.throttles: list[Throttle] = []
        # parts of the limits of the judge's servers: its own, what calls use, and what lets a call be made
        self.part = self.used = self.least = 0.0
        self.sharer = ""

        @lru_cache(maxsize=8192)
        def stored(get: Any, id_: int) -> Any:
            with db.read() as session:
                return get(session, id_).value

        self._stored = stored

    def run(self, judge_id: int) -> bool:
        """Score until no item is pending; return False if the time was up or a stop was requested first.

        If what is stored of the judge is not valid any more, its items fail.
        """
        with self.db.read() as session:
            row = judges.get(session, judge_id)
        if (judge := row.valid) is None:
            return self._fail_items(judge_id, f"its judge cannot be read: {row.error}")
        ends = [leaf.endpoint for leaf in judge.leaf_judges]
        self.priced, self.concurrency = judge.priced, max(one.concurrency for one in ends)
        self.least = 1.0 / min(limit for one in ends for limit in (one.concurrency, one.requests_per_minute) if limit)
        with bound_contextvars(worker=self.worker, judge=judge.name):
            pool = self.pool or EnginePool()
            try:
                return pool.run(judge, lambda engine: self._work(judge_id, judge, engine, throttles_of(engine)))
            finally:
                if pool is not self.pool:
                    pool.close()

    def _fail_items(self, judge_id: int, reason: str) -> bool:
        log.error("items fail", worker=self.worker, judge_id=judge_id, reason=reason)
        claim = partial(leases.claim, limit=self.settings.claim_size, seconds=self.settings.lease_seconds)
        while not self.stopping.is_set():
            with self.db.write() as session:
                taken = claim(session, judge_id, worker=self.worker)
                leases.release(session, taken, failed=reason)
            if not taken:
                return True
            with self.db.write() as session:
                leases.finish(session, {lease.job_id for lease in taken})
        return False

    def claim(
        self, session: Session, judge_id: int, judge: Judge, limit: int, *, job_id: int | None = None, after: int = 0
    ) -> tuple[list[Lease], list[ItemWork]]:
        """Claim items, of a job and above an id if they are given, and return the leases with their work.

        An item whose inputs cannot be read fails at once.
        """
        taken = leases.claim(
            session,
            judge_id,
            limit=limit,
            worker=self.worker,
            seconds=self.settings.lease_seconds,
            whole_groups=judge.mode == "comparative",
            job_id=job_id,
            after=after,
        )
        scoring: list[ScoringWork] = []
        generating: list[GenerationWork] = []
        of_scoring = [lease.completion_id for lease in taken if isinstance(lease, ScoringLease)]
        rows = by_id(session, CompletionRow, of_scoring)
        for lease in taken:
            try:
                if isinstance(lease, ScoringLease):
                    row = rows[lease.completion_id]
                    key = (lease.job_id, lease.rubric_id, row.prompt_id)
                    about = self._stored(rubrics.get, lease.rubric_id), self._stored(get_prompt, row.prompt_id)
                    scoring.append(ScoringWork(lease, judge, key, *about, row.value))
                elif isinstance(lease, GenerationLease):
                    how = Generation.model_validate(jobs.get(session, lease.job_id).settings)
                    folder, policy = self.settings.collections_dir, self.settings.require_approval
                    of_job = partial(generation.inputs_of_prompt, job_id=lease.job_id, collections_dir=folder)
                    task = of_job(session, lease.prompt_id, how)
                    gate_judge = judge if how.gate_judge is None else judges.get(session, how.gate_judge).value
                    replies = every(page_of, session, table=ReplyRow, item_id=lease.item_id)
                    known = {one.digest: one.reply for one in replies}
                    of_gate = judge_of_gate(gate_judge)
                    generating.append(GenerationWork(lease, judge, of_gate, how, task, known, policy))
            except (ValidationError, RubricsvcError) as error:
                if isinstance(lease, ScoringLease) and not isinstance(error, ValidationError):
                    raise  # of the database, not of what it holds
                detail = ": ".join(first_error(error)) if isinstance(error, ValidationError) else str(error)
                leases.release(session, [lease], failed=f"its inputs cannot be read: {detail}")
                leases.finish(session, [lease.job_id])
        if judge.mode == "comparative":
            _prepare_groups(session, judge, scoring)
        else:
            for one in scoring:
                one.questions = group_questions(one.rubric, judge, [one.completion])
            found = completions.known_verdicts(session, [(one.lease.completion_id, one.questions) for one in scoring])
            for one, answered in zip(scoring, found, strict=True):
                one.known = answered
        return taken, [*scoring, *generating]

    async def _work(self, judge_id: int, judge: Judge, engine: Engine, throttles: list[Throttle]) -> bool:
        self.engines, self.throttles = [(judge, engine)], throttles
        self.sharer = f"{NAME}/{os.getpid()}:{id(engine):x}"  # an engine is kept for the next drain, with its counts
        capacity = max(self.settings.claim_size, self.concurrency)
        until = time.monotonic() + self.settings.drain_seconds
        heartbeat = asyncio.create_task(self._heartbeat(judge_id))
        none_left = False
        try:
            while not (stopping := self.stopping.is_set()):
                in_time = time.monotonic() < until  # then nothing new is started
                none_left = in_time and await self._fill(judge_id, judge, capacity)
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
            await self._release_unfinished(judge_id)
            for _, other in self.engines[1:]:
                await other.aclose()

    def engine_of(self, judge: Judge) -> Engine:
        """Return the engine of a judge, made at first use; judges of the same model and endpoint share one."""
        for other, engine in self.engines:
            if judge is other or all(getattr(other, name) == getattr(judge, name) for name in _ENGINE_FIELDS):
                return engine
        self.engines.append((judge, engine_or_failure(judge)))
        return self.engines[-1][1]

    async def _fill(self, judge_id: int, judge: Judge, capacity: int) -> bool:
        """Claim items while there is room for half a claim, and start work on them; return whether none is pending.

        After a share that is smaller than the room, other workers have time for theirs until the next result.
        """
        size = self.settings.claim_size

        def take(session: Session, limit: int) -> tuple[int, list[ItemWork], dict[int, bool], float]:
            """Return how many were claimed, the work, each job's having a budget if it has a price, and the part."""
            share, others = limit, 1
            if not self.settings.broker_url.startswith(MEMORY):  # it wakes no worker of another process
                share, others = leases.fair_share(session, judge_id, limit=limit, held=len(self.in_flight))
            taken, work = self.claim(session, judge_id, judge, share)
            gated = {one.lease.job_id for one in work if isinstance(one, GenerationWork) and one.gate_judge.priced}
            priced = {one.lease.job_id for one in work} if self.priced else gated
            rows = by_id(session, JobRow, priced) if priced else {}
            budgets = {job.id: job.budget is not None for job in rows.values()}
            return len(taken), work, budgets, self._part(session, judge_id, others if self.starting else 1)

        async def run(work: ItemWork, budget: JobBudget | None) -> Result:
            own = ItemBudget(budget) if budget and budget.capped else budget
            current_budget.set(own)  # for this task and its children
            with bound_contextvars(job_id=work.lease.job_id, item_id=work.lease.item_id):
                return await work.run(self.engine_of, self._write)

        budget_of = partial(JobBudget, write=self._write, worker=self.worker, concurrency=self.concurrency)
        while (room := capacity - len(self.in_flight)) >= max(1, size // 2):
            wanted = min(size, room)
            claimed, work, capped, self.part = await self._write(partial(take, limit=wanted))
            self.used = max((one.share(self.part) for one in self.throttles), default=0.0)
            for one in work:
                budget = None
                if (has_limit := capped.get(one.lease.job_id)) is not None:
                    fresh = budget_of(one.lease.job_id, capped=has_limit)
                    budget = self.budgets.setdefault((one.lease.job_id, has_limit), fresh)
                    budget.over = False  # perhaps after a retry with a larger budget
                self.in_flight[asyncio.create_task(run(one, budget))] = one.lease
            if claimed < wanted and (self.in_flight or not claimed):
                return not claimed
        return False

    def _part(self, session: Session, judge_id: int, others: int = 1) -> float:
        """Return this drain's part of the limits of the judge's servers; all is its own while it is alone."""
        if not self.throttles or (self.part == 1.0 and leases.drains(session, judge_id) == 1):
            return 1.0
        used = max(self.part, self.used)  # it may use what it has until the next heartbeat
        return leases.share(session, judge_id, self.sharer, used=used, least=self.least, begin=others)

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

        def record(session: Session) -> tuple[list[int], set[int]]:
            scored = leases.record(session, [one for one in results if isinstance(one, ItemResult)])
            made = [one for one in results if isinstance(one, GeneratedItem)]
            return scored.items + (generation.record(session, made) if made else []), scored.repaired_jobs

        try:
            written, repaired = await self._write(record)
            job_ids = {result.lease.job_id for result in results} | repaired
            await self._write(lambda session: leases.finish(session, job_ids))
            return written
        except AWAY:
            raise
        except Exception as error:
            log.exception("results cannot be recorded", count=len(results))
            reason = f"the result cannot be recorded: {type(error).__name__}: {getattr(error, 'orig', error)}"
        if len(results) > 1:
            return [id_ for result in results for id_ in await self._record_all([result])]
        lease = results[0].lease
        await self._write(lambda session: leases.release(session, [lease], failed=reason))
        await self._write(lambda session: leases.finish(session, [lease.job_id]))
        return [lease.item_id]

    async def _release_unfinished(self, judge_id: int) -> None:
        """Cancel what is in flight and release its leases, and its part of the judge's limits."""
        unfinished = [*self.in_flight.values(), *(result.lease for result in self.finished)]
        for task in self.in_flight:
            task.cancel()
        await asyncio.gather(*self.in_flight, return_exceptions=True)
        with contextlib.suppress(SQLAlchemyError, UnavailableError):
            for budget in list(self.budgets.values()):
                await budget.flush()
        used = max((one.share(self.part) for one in self.throttles), default=0.0)
        if unfinished or self.throttles:
            with contextlib.suppress(SQLAlchemyError, UnavailableError):
                await self._write(lambda session: leases.release(session, unfinished))
                await self._write(lambda session: leases.leave(session, judge_id, self.sharer, used))

    async def _heartbeat(self, judge_id: int) -> None:
        """Renew the leases in time, cancel the work of those that were lost, and share the limits of the judge."""
        seconds, renewed_at = self.settings.lease_seconds, time.monotonic()

        def held_of(ours: Sequence[Lease], *, renewed: bool) -> tuple[set[int], float]:
            with self.db.read() as session:
                shared = self.part < 1.0 or leases.drains(session, judge_id) > 1
            with self.db.write() if renewed or shared else self.db.read() as session:
                held = leases.held(session, ours, extended_by=seconds if renewed else None)
                return held, self._part(session, judge_id) if shared else self.part

        while True:
            await asyncio.sleep(self.settings.heartbeat_seconds)
            if not (ours := [*self.in_flight.values(), *(result.lease for result in self.finished)]):
                continue
            try:
                renewed = time.monotonic() - renewed_at > seconds / 3
                held, self.part = await asyncio.to_thread(held_of, ours, renewed=renewed)
                self.used = max((one.share(self.part) for one in self.throttles), default=0.0)
                self.starting, renewed_at = False, time.monotonic() if renewed else renewed_at
            except (SQLAlchemyError, UnavailableError) as error:
                self.db.note_outage(error)
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
                limit = GRACE_SECONDS if self.stopping.is_set() else self.settings.lease_seconds
                if time.monotonic() + pause > began + limit:
                    raise
                self.db.note_outage(error, began)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)


def complete_answered(db: Database, job_id: int) -> int:
    """Complete the pending items of a job whose questions are all answered; return how many.

    No judge is asked and no engine is made. The other items stay pending. A page is claimed, recorded and released in
    one transaction, so that a killed process holds no lease.
    """
    drainer, completed, after = Drainer(db, get_settings()), 0, 0
    with db.read() as session:
        job = jobs.get(session, job_id)
        judge_id, judge = job.judge_id, job.judge.value
    while True:
        with db.write() as session:
            taken, work = drainer.claim(session, judge_id, judge, _PAGE, job_id=job_id, after=after)
            if not taken:
                break
            results, unanswered = [], list[Lease]()
            for one in work:
                if not isinstance(one, ScoringWork):
                    continue
                keys, known = list(one.rubric.by_key), one.known
                if known.keys() >= set(keys):
                    in_order = [known[key] for key in keys]
                    results.append(ItemResult(one.lease, one.rubric, one.questions, in_order, frozenset(known)))
                else:
                    unanswered.append(one.lease)
            completed += len(leases.record(session, results).items)
            leases.release(session, unanswered)
        after = [lease.item_id for lease in taken if lease.item_id > after][:_PAGE][-1]  # the rest is of their groups
    with db.write() as session:
        leases.finish(session, [job_id])
    return completed
