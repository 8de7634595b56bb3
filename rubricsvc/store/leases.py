"""The queue: items are claimed under a lease, recorded under its fence, and released when it expires.

::

    pending ──claim──▶ leased ──record──▶ done | failed
       ▲                 │
       └──── release, or the reconciler once lease_until is past ────┘   (cancel takes pending and leased alike)

Each claim raises the item's ``fence``. A worker that returns after its lease was released has an old fence: its results
are dropped, so that nothing is counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import ColumnElement, Select, func, select, tuple_, update
from sqlalchemy.orm import Session

from rubricsvc.core.fingerprint import QuestionSet
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import items, jobs, outbox, verdicts, workers
from rubricsvc.store.base import batched, database_time
from rubricsvc.store.tables import (
    FAILED,
    IN_PROGRESS,
    LEASED,
    PENDING,
    QUEUED,
    CompletionRow,
    ItemRow,
    JobRow,
    OutboxRow,
)
from rubricsvc.store.verdicts import Name

GroupKey = tuple[int, int, int]
"""(job id, rubric id, prompt id): names a group of completions that are compared."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one item for a time."""

    item_id: int
    fence: int
    job_id: int
    judge_id: int


@dataclass(frozen=True, slots=True)
class ScoringLease(Lease):
    """The right to score a completion under a rubric."""

    completion_id: int
    rubric_id: int


@dataclass(frozen=True, slots=True)
class GenerationLease(Lease):
    """The right to generate the rubric of a prompt; see `tables.ItemRow` for ``retries``."""

    prompt_id: int
    retries: int


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The verdicts of a leased item, one for each criterion, of which ``known`` ones were read from the store."""

    lease: ScoringLease
    rubric: Rubric
    questions: QuestionSet
    verdicts: Sequence[Verdict]
    known: frozenset[str] = frozenset()

    @property
    def new(self) -> Iterator[tuple[Name, Verdict]]:
        """The verdicts that were not read from the store, by name."""
        for verdict in self.verdicts:
            if verdict.criterion not in self.known:
                yield (self.lease.completion_id, self.questions.fingerprints[verdict.criterion]), verdict


def fair_share(session: Session, judge_id: int, *, limit: int, held: int) -> int:
    """Return how many of a judge's pending items a worker that holds ``held`` ones may claim now, up to ``limit``.

    Each running worker has an equal part of the pending and leased items. If a worker does not claim its part, because
    it is busy or was killed lately, the others divide what is left at each of their next claims.
    """
    running = workers.running(session)
    if running <= 1:
        return limit
    pending = _count(session, judge_id, PENDING, at_most=limit * running)
    leased = _count(session, judge_id, LEASED)
    equal_part, part_of_pending = -(-(pending + leased) // running), -(-pending // running)
    return min(limit, max(equal_part - held, part_of_pending))


def _count(session: Session, judge_id: int, state: str, at_most: int | None = None) -> int:
    items = select(ItemRow.id).where(ItemRow.judge_id == judge_id, ItemRow.state == state).limit(at_most)
    return session.scalar(select(func.count()).select_from(items.subquery())) or 0


def claim(
    session: Session,
    judge_id: int,
    *,
    limit: int,
    worker: str,
    seconds: float,
    whole_groups: bool = False,
    job_id: int | None = None,
    after: int = 0,
) -> list[Lease]:
    """Claim up to ``limit`` pending items of a judge (and job) with ids above ``after``, by id.

    Items being claimed are skipped.

    With ``whole_groups``, the pending rest of each claimed item's group is claimed too; see `groups`.
    """
    now = database_time(session)
    wanted = (
        select(ItemRow.id)
        .where(ItemRow.judge_id == judge_id, ItemRow.state == PENDING, ItemRow.id > after)
        .order_by(ItemRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    if job_id is not None:
        wanted = wanted.where(ItemRow.job_id == job_id)
    ids = list(session.scalars(wanted))
    if not ids:
        return []
    if whole_groups:
        ids = list({*ids, *session.scalars(_pending_of_groups(ids))})
    taken = session.execute(
        update(ItemRow)
        .where(ItemRow.id.in_(ids), ItemRow.state == PENDING)
        .values(state=LEASED, fence=ItemRow.fence + 1, lease_until=now + seconds, worker=worker)
        .returning(
            ItemRow.id,
            ItemRow.fence,
            ItemRow.job_id,
            ItemRow.judge_id,
            ItemRow.completion_id,
            ItemRow.rubric_id,
            ItemRow.prompt_id,
            ItemRow.retries,
        ),
        execution_options={"synchronize_session": False},
    ).all()
    leases = [_lease(row) for row in taken]
    # a job that is locked is being cancelled or retried, which waits for these items: waiting for it is a deadlock
    queued = select(JobRow.id).where(JobRow.id.in_({lease.job_id for lease in leases}), JobRow.status == QUEUED)
    free = list(session.scalars(queued.order_by(JobRow.id).with_for_update(skip_locked=True)))
    session.execute(update(JobRow).where(JobRow.id.in_(free)).values(status=IN_PROGRESS))
    return sorted(leases, key=lambda lease: lease.item_id)


def _lease(row: Any) -> Lease:
    held = (row.id, row.fence, row.job_id, row.judge_id)
    if row.prompt_id is None:
        return ScoringLease(*held, row.completion_id, row.rubric_id)
    return GenerationLease(*held, row.prompt_id, row.retries)


def _pending_of_groups(ids: Sequence[int]) -> Select[int]:
    """Select the pending items of the groups that these items belong to."""
    group = (ItemRow.job_id, ItemRow.rubric_id, CompletionRow.prompt_id)
    with_prompt = ItemRow.completion_id == CompletionRow.id
    begun = select(*group).join(CompletionRow, with_prompt).where(ItemRow.id.in_(ids))
    return (
        select(ItemRow.id)
        .join(CompletionRow, with_prompt)
        .where(tuple_(*group).in_(begun), ItemRow.state == PENDING)
        .with_for_update(of=ItemRow, skip_locked=True)
    )


def groups(session: Session, keys: Iterable[GroupKey]) -> dict[GroupKey, list[int]]:
    """Return the completion ids of each group, ascending: a job's items of one rubric and prompt, in any state."""
    columns = (ItemRow.job_id, ItemRow.rubric_id, CompletionRow.prompt_id)
    found: dict[GroupKey, list[int]] = {}
    for chunk in batched(keys):
        query = (
            select(*columns, ItemRow.completion_id)
            .join(CompletionRow, ItemRow.completion_id == CompletionRow.id)
            .where(tuple_(*columns).in_(chunk))
            .order_by(ItemRow.completion_id)
        )
        for job_id, rubric_id, prompt_id, completion_id in session.execute(query):
            found.setdefault((job_id, rubric_id, prompt_id), []).append(completion_id)
    return found


def _valid(leases: Sequence[Lease]) -> ColumnElement[bool]:
    """Match the items whose leases are still valid: not cancelled, not claimed by another worker."""
    fences = [(lease.item_id, lease.fence) for lease in leases]
    return tuple_(ItemRow.id, ItemRow.fence).in_(fences) & (ItemRow.state == LEASED)


def _set(session: Session, leases: Sequence[Lease], **values: object) -> None:
    statement = update(ItemRow).where(_valid(leases)).values(**values)
    session.execute(statement, execution_options={"synchronize_session": False})


def held(session: Session, leases: Sequence[Lease]) -> set[int]:
    """Return the items whose leases are still valid."""
    return set(session.scalars(select(ItemRow.id).where(_valid(leases))))


def renew(session: Session, leases: Sequence[Lease], *, seconds: float) -> None:
    """Extend the valid leases to ``seconds`` from now."""
    _set(session, leases, lease_until=database_time(session) + seconds)


def release(session: Session, leases: Sequence[Lease]) -> None:
    """Release items that were not scored. This does not count as a lost lease."""
    _set(session, leases, state=PENDING, lease_until=None, worker=None)
    for judge_id, number in Counter(lease.judge_id for lease in leases).items():
        outbox.publish(session, judge_id, number)


def fail(session: Session, leases: Sequence[Lease], reason: str) -> None:
    """Fail the items whose leases are valid, and which cannot be scored or recorded."""
    _set(session, leases, state=FAILED, lease_until=None, worker=None, null_reason=reason[: items.REASON_CHARS])


class LeaseResult(Protocol):
    """What a worker has made of a leased item."""

    @property
    def lease(self) -> Lease:
        """The lease of the item."""


R = TypeVar("R", bound=LeaseResult)


def lock_valid(session: Session, results: Sequence[R]) -> list[R]:
    """Lock the items whose leases are valid, and return their results."""
    if not results:
        return []
    by_item = {result.lease.item_id: result for result in results}
    locked = (
        select(ItemRow.id, ItemRow.fence)
        .where(ItemRow.id.in_(by_item), ItemRow.state == LEASED)
        .order_by(ItemRow.id)
        .with_for_update()
    )
    return [by_item[id_] for id_, fence in session.execute(locked) if by_item[id_].lease.fence == fence]


class Recorded(NamedTuple):
    """The items that were written, and the jobs with an item of which a failed verdict was replaced."""

    items: list[int]
    repaired_jobs: set[int]


def record(session: Session, results: Sequence[ItemResult]) -> Recorded:
    """Write verdicts and rewards of the items whose leases are valid. The rest is dropped.

    If a verdict was stored by another worker in the meantime, the reward is computed from that one. Call `jobs.finish`
    for the jobs of the results and for the repaired ones afterwards.
    """
    if not (ours := lock_valid(session, results)):
        return Recorded([], set())
    verdicts.add_questions(session, (result.questions for result in ours))
    new, shared = _distinct(ours)
    in_order = [new[name] for name in sorted(new)]  # one order for all writers: two cannot block each other
    written = verdicts.write(session, in_order) if new else {}
    uncontested = written.keys() - shared
    contested = [result for result in ours if any(name not in uncontested for name, _ in result.new)]
    read = verdicts.known(session, [(result.lease.completion_id, result.questions) for result in contested])
    stored = {result.lease.item_id: found for result, found in zip(contested, read, strict=True)}
    own = select(JobRow.id, JobRow.min_coverage).where(JobRow.id.in_({result.lease.job_id for result in ours}))
    least: dict[int, float | None] = dict(session.execute(own).all())
    rows = [_item_columns(one, stored.get(one.lease.item_id, {}), least[one.lease.job_id]) for one in ours]
    session.execute(update(ItemRow), rows)
    replaced = [name for name, attempts in written.items() if attempts > 1 and new[name][3].outcome != "failed"]
    return Recorded([result.lease.item_id for result in ours], items.recompute(session, replaced))


def _distinct(results: Sequence[ItemResult]) -> tuple[dict[Name, tuple[Name, int, int, Verdict]], set[Name]]:
    """Return what is to be written, each verdict once, and the names that several verdicts have.

    Two items of one batch may ask the same question. Of several verdicts a settled one is written.
    """
    rows: dict[Name, tuple[Name, int, int, Verdict]] = {}
    shared: set[Name] = set()
    for result in results:
        for name, verdict in result.new:
            if name in rows:
                shared.add(name)
                if rows[name][3].outcome != "failed":
                    continue
            rows[name] = (name, result.lease.rubric_id, result.lease.judge_id, verdict)
    return rows, shared


def _item_columns(result: ItemResult, stored: Mapping[str, Verdict], min_coverage: float | None) -> dict[str, object]:
    final = {verdict.criterion: verdict for verdict in result.verdicts} | dict(stored)
    return {
        "id": result.lease.item_id,
        "lease_until": None,
        "worker": None,
        "question_set": result.questions.digest,
        **items.reward_columns(result.rubric, final.values(), min_coverage),
    }


def holders(session: Session, host: str) -> set[str]:
    """Return the names of the workers of a host that hold leases."""
    of_host = ItemRow.worker.startswith(f"{host}:", autoescape=True)
    names = session.scalars(select(ItemRow.worker).where(ItemRow.state == LEASED, of_host).distinct())
    return {name for name in names if name is not None}


def reconcile(session: Session, *, max_leases: int, dead: Collection[str] = ()) -> int:
    """Release leases that have expired or whose worker is dead, and announce pending work without a message.

    An item that lost ``max_leases`` leases fails as ``worker_lost``. Returns the number of leases.
    """
    is_over = ItemRow.lease_until < database_time(session)
    if dead:
        is_over |= ItemRow.worker.in_(dead)
    over = select(ItemRow.id, ItemRow.lost).where(ItemRow.state == LEASED, is_over).with_for_update(skip_locked=True)
    rows = session.execute(over).all()
    retried = [id_ for id_, lost in rows if lost + 1 < max_leases]
    failed = [id_ for id_, lost in rows if lost + 1 >= max_leases]
    freed = {"lease_until": None, "worker": None, "lost": ItemRow.lost + 1}
    for ids, values in ((retried, {"state": PENDING}), (failed, {"state": FAILED, "null_reason": _WORKER_LOST})):
        for chunk in batched(ids):
            session.execute(update(ItemRow).where(ItemRow.id.in_(chunk)).values(**freed, **values))
    jobs.finish(session)
    for judge_id, number in _unannounced(session).items():
        outbox.publish(session, judge_id, number)
    return len(rows)


_WORKER_LOST = "worker_lost: every worker that claimed this item died; try again with `rubricsvc jobs retry`"


def _unannounced(session: Session) -> dict[int, int]:
    """Return the number of pending items of judges without a lease and without a message in the outbox."""
    waiting = session.scalars(select(OutboxRow.args).where(OutboxRow.task == outbox.SCORE)).all()
    busy = select(ItemRow.judge_id).where(ItemRow.state == LEASED)
    idle = (ItemRow.state == PENDING) & ItemRow.judge_id.not_in(busy)
    query = select(ItemRow.judge_id, func.count()).where(idle).group_by(ItemRow.judge_id)
    return {judge_id: number for judge_id, number in session.execute(query) if [judge_id] not in waiting}


def judges_with_work(session: Session) -> list[int]:
    """Return the judges with pending items."""
    return list(session.scalars(select(ItemRow.judge_id).where(ItemRow.state == PENDING).distinct()))
