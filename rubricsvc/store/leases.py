"""The queue: items are claimed under a lease, recorded under its fence, and released when it expires.

::

    pending ──claim──▶ leased ──record──▶ done | failed
       ▲                 │
       └──── release, or the reconciler once lease_until is past ────┘   (cancel takes pending and leased alike)

Each claim raises the item's ``fence``. A worker that returns after its lease was released has an old fence: its results
are dropped, so that nothing is counted twice.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from sqlalchemy import ColumnElement, case, delete, func, select, tuple_, update
from sqlalchemy.orm import Session
from structlog import get_logger

from rubricsvc.core.fingerprint import QuestionSet
from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.store import completions
from rubricsvc.store.completions import VerdictName
from rubricsvc.store.session import PUBLISHED, batched, rows_with
from rubricsvc.store.tables import (
    BUDGET_EXHAUSTED,
    COMPLETED,
    COMPLETED_WITH_FAILURES,
    DONE,
    FAILED,
    IN_PROGRESS,
    LEASED,
    PENDING,
    QUEUED,
    CompletionRow,
    ItemRow,
    JobRow,
    JudgeRow,
    OutboxRow,
    QuestionRow,
    RubricRow,
    ShareRow,
    WorkerRow,
)

REPORT_SECONDS = 10.0
MISSED_REPORTS = 3  # a worker that missed so many reports does not count as running
KEPT_SECONDS = 3600.0  # how long the row of a killed worker is kept, and listed


def database_time(session: Session) -> float:
    """Return seconds since the epoch by the clock that all workers share: the database's (on SQLite the machine's)."""
    if session.get_bind().dialect.name == "postgresql":
        return float(session.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())
    return time.time()


def report_worker(
    session: Session, name: str, *, host: str, pid: int, uptime: float | None, processes: int = 1
) -> None:
    """Report that a worker runs, for ``uptime`` seconds so far; or, with None, that it stops."""
    if uptime is None:
        session.execute(delete(WorkerRow).where(WorkerRow.name == name))
        return
    now = database_time(session)
    session.merge(WorkerRow(name=name, host=host, pid=pid, processes=processes, started_at=now - uptime, seen_at=now))


def list_workers(session: Session) -> list[tuple[WorkerRow, float]]:
    """Return all workers, in the order in which they started, with the seconds since each was last seen."""
    now, by_start = database_time(session), select(WorkerRow).order_by(WorkerRow.started_at, WorkerRow.name)
    return [(row, now - row.seen_at) for row in session.scalars(by_start)]


WORKERS, PROCESSES = func.count(WorkerRow.name), func.sum(WorkerRow.processes)


def running_workers(session: Session, number: ColumnElement[int] = WORKERS) -> int:
    """Return the number of running workers, or with `PROCESSES` that of their processes."""
    reported_lately = WorkerRow.seen_at >= database_time(session) - REPORT_SECONDS * MISSED_REPORTS
    return int(session.scalar(select(number).where(reported_lately)) or 0)  # PostgreSQL sums to a Decimal


class Queue(NamedTuple):
    """Open ``items`` by (judge name, state), all that are ``pending``, messages in the ``outbox``, running workers."""

    items: dict[tuple[str, str], int]
    pending: int
    outbox: int
    workers: int


def queue(session: Session) -> Queue:
    """Count open items in an index. Every judge is listed with both open states, also with 0."""
    names = dict(session.execute(select(JudgeRow.id, JudgeRow.name)).all())
    items = {(name, state): 0 for name in names.values() for state in (PENDING, LEASED)}
    open_items = select(ItemRow.judge_id, ItemRow.state, func.count()).group_by(ItemRow.judge_id, ItemRow.state)
    open_items = open_items.where(ItemRow.judge_id.in_(select(JudgeRow.id)), ItemRow.state.in_((PENDING, LEASED)))
    for judge_id, state, count in session.execute(open_items):
        items[names.get(judge_id, str(judge_id)), state] = count  # a judge may have come since
    messages = session.scalar(select(func.count()).where(OutboxRow.sent_at.is_(None))) or 0
    pending = sum(count for (_, state), count in items.items() if state == PENDING)
    return Queue(items, pending, messages, running_workers(session))


SCORE = "rubricsvc.score"  # the task that drains the items of one judge
UNREAD_SECONDS = 15.0  # how long a message that was sent counts as on its way to a worker; then it is taken for lost

log = get_logger(__name__)


def publish(session: Session, judge_id: int, items: int = 1) -> None:
    """Tell workers that the judge has so many pending items: all their processes, and no more than there are items.

    Messages that no worker has read yet count. They are locked until the items are committed: who reads one sees them.
    """
    times = min(items, max(1, running_workers(session, PROCESSES)))
    known = OutboxRow.sent_at.is_(None) | (OutboxRow.sent_at > database_time(session) - UNREAD_SECONDS)
    unread = select(OutboxRow.id, OutboxRow.sent_at).where(OutboxRow.judge_id == judge_id, known).limit(times)
    sent = [sent_at for _, sent_at in session.execute(unread.with_for_update(read=True, skip_locked=True))]
    session.add_all(OutboxRow(task=SCORE, judge_id=judge_id) for _ in range(times - len(sent)))
    if len(sent) < times or None in sent:  # whose sender skips what is locked here
        session.info[PUBLISHED] = True


def take_message(session: Session, message_id: int) -> None:
    """Delete a message that a worker has read, once those who count on it have committed their items."""
    session.execute(delete(OutboxRow).where(OutboxRow.id == message_id))


GroupKey = tuple[int, int, int]  # (job id, rubric id, prompt id): names a group of completions that are compared


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
class LeaseResult:
    """What a worker has made of a leased item."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ItemResult(LeaseResult):
    """The verdicts of a leased item, one for each criterion, of which ``known`` ones were read from the store."""

    lease: ScoringLease
    rubric: Rubric
    questions: QuestionSet
    verdicts: Sequence[Verdict]
    known: frozenset[str] = frozenset()

    @property
    def new(self) -> Iterator[tuple[VerdictName, Verdict]]:
        """The verdicts that were not read from the store, by name."""
        for verdict in self.verdicts:
            if verdict.criterion not in self.known:
                yield (self.lease.completion_id, self.questions.fingerprints[verdict.criterion]), verdict


def drains(session: Session, judge_id: int) -> int:
    """Return how many drains share the limits of a judge's servers: at most one a worker's process."""
    return session.scalar(select(func.count()).where(ShareRow.judge_id == judge_id, ShareRow.until.is_(None))) or 0


def share(session: Session, judge_id: int, worker: str, *, used: float, least: float, begin: int = 1) -> float:
    """Return the part, from 0 to 1, of the limits of a judge's servers that a drain may use from now on.

    It is an equal part, and at least ``least``, a single call; less where others still use more than theirs, so that
    the limits hold while a drain joins. ``begin`` drains begin together. The others see what is ``used`` at present.
    """
    session.execute(select(JudgeRow.id).where(JudgeRow.id == judge_id).with_for_update(key_share=True))  # one by one
    others, active = (ShareRow.judge_id == judge_id, ShareRow.worker != worker), ShareRow.until.is_(None)
    sums = select(func.sum(ShareRow.part), func.count().filter(active)).where(*others)
    taken, number = session.execute(sums.where(active | (ShareRow.until > database_time(session)))).one()
    part = min(max(least, 1.0 / max(begin, 1 + number)), max(0.0, 1.0 - (taken or 0.0)))
    session.merge(ShareRow(judge_id=judge_id, worker=worker, part=max(part, used), until=None))
    return part


def leave(session: Session, judge_id: int, worker: str, used: float) -> None:
    """End a drain's part of the limits: what it has ``used`` of a rate counts for a minute."""
    if (row := session.get(ShareRow, (judge_id, worker))) is not None:
        row.part, row.until = used, database_time(session) + 60.0


def fair_share(session: Session, judge_id: int, *, limit: int, held: int) -> tuple[int, int]:
    """Return how many of a judge's pending items a process that holds ``held`` ones may claim, and how many can do so.

    Each process of running workers has an equal part of the pending and leased items. If one does not claim its part,
    because it is busy or was killed lately, the others divide what is left at each of their next claims.
    """
    if (running := running_workers(session, PROCESSES)) <= 1:
        return limit, 1
    of_judge = select(ItemRow.id).where(ItemRow.judge_id == judge_id)
    bounds = ((PENDING, limit * running), (LEASED, None))
    some = (of_judge.where(ItemRow.state == state).limit(most) for state, most in bounds)
    pending, leased = (session.scalar(select(func.count()).select_from(one.subquery())) or 0 for one in some)
    equal_part, part_of_pending = -(-(pending + leased) // running), -(-pending // running)
    return min(limit, max(equal_part - held, part_of_pending)), min(running, pending + leased)


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

    Items being claimed are skipped. With ``whole_groups``, the pending rest of each claimed item's group is claimed
    too; see `groups`.
    """
    now, c = database_time(session), ItemRow.__table__.c
    pending = select(ItemRow.id).where(ItemRow.judge_id == judge_id, ItemRow.state == PENDING, ItemRow.id > after)
    wanted = pending.order_by(ItemRow.id).limit(limit).with_for_update(skip_locked=True)
    if job_id is not None:
        wanted = wanted.where(ItemRow.job_id == job_id)
    if not (ids := list(session.scalars(wanted))):
        return []
    if whole_groups:
        group = (ItemRow.job_id, ItemRow.rubric_id, CompletionRow.prompt_id)
        grouped = ItemRow.completion_id == CompletionRow.id
        begun = select(*group).join(CompletionRow, grouped).where(ItemRow.id.in_(ids))
        rest = select(ItemRow.id).join(CompletionRow, grouped)
        rest = rest.where(tuple_(*group).in_(begun), ItemRow.state == PENDING)
        ids = list({*ids, *session.scalars(rest.with_for_update(of=ItemRow, skip_locked=True))})
    taking = update(ItemRow).where(ItemRow.id.in_(ids), ItemRow.state == PENDING)
    taking = taking.values(state=LEASED, fence=ItemRow.fence + 1, lease_until=now + seconds, worker=worker)
    columns = (c.id, c.fence, c.job_id, c.completion_id, c.rubric_id, c.prompt_id, c.retries)
    taken = session.execute(taking.returning(*columns), execution_options={"synchronize_session": False}).all()
    leases: list[Lease] = []
    for row in taken:
        right = (row.id, row.fence, row.job_id, judge_id)
        scoring = ScoringLease(*right, row.completion_id, row.rubric_id)
        leases.append(scoring if row.prompt_id is None else GenerationLease(*right, row.prompt_id, row.retries))
    # a job that is locked is being cancelled or retried, which waits for these items: waiting for it is a deadlock
    queued = select(JobRow.id).where(JobRow.id.in_({lease.job_id for lease in leases}), JobRow.status == QUEUED)
    free = list(session.scalars(queued.order_by(JobRow.id).with_for_update(skip_locked=True)))
    session.execute(update(JobRow).where(JobRow.id.in_(free)).values(status=IN_PROGRESS))
    return sorted(leases, key=lambda lease: lease.item_id)


def groups(session: Session, keys: Iterable[GroupKey]) -> dict[GroupKey, list[int]]:
    """Return the completion ids of each group, ascending: a job's items of one rubric and prompt, in any state."""
    columns = (ItemRow.job_id, ItemRow.rubric_id, CompletionRow.prompt_id)
    found: dict[GroupKey, list[int]] = {}
    query = select(*columns, ItemRow.completion_id).join(CompletionRow, ItemRow.completion_id == CompletionRow.id)
    for *key, id_ in rows_with(session, query.order_by(ItemRow.completion_id), tuple_(*columns), keys):
        found.setdefault(tuple(key), []).append(id_)
    return found


def _valid(leases: Sequence[Lease]) -> ColumnElement[bool]:
    """Match the items whose leases are still valid: not cancelled, not claimed by another worker."""
    fences = [(lease.item_id, lease.fence) for lease in leases]
    return tuple_(ItemRow.id, ItemRow.fence).in_(fences) & (ItemRow.state == LEASED)


def held(session: Session, leases: Sequence[Lease], *, extended_by: float | None = None) -> set[int]:
    """Return the items whose leases are still valid, once they end so many seconds from now."""
    if extended_by is not None:
        later = update(ItemRow).where(_valid(leases)).values(lease_until=database_time(session) + extended_by)
        session.execute(later, execution_options={"synchronize_session": False})
    return set(session.scalars(select(ItemRow.id).where(_valid(leases))))


def release(session: Session, leases: Sequence[Lease], failed: str | None = None) -> None:
    """Release items that were not scored, which does not count as a lost lease; or fail them for this reason."""
    values = {"state": PENDING} if failed is None else {"state": FAILED, "null_reason": failed[:REASON_CHARS]}
    statement = update(ItemRow).where(_valid(leases)).values(lease_until=None, worker=None, **values)
    session.execute(statement, execution_options={"synchronize_session": False})
    for judge_id, number in Counter(lease.judge_id for lease in leases).items() if failed is None else ():
        publish(session, judge_id, number)


R = TypeVar("R", bound=LeaseResult)


def lock_valid(session: Session, results: Sequence[R]) -> list[R]:
    """Lock the items whose leases are valid, and return their results."""
    if not results:
        return []
    by_item = {result.lease.item_id: result for result in results}
    leased = select(ItemRow.id, ItemRow.fence).where(ItemRow.id.in_(by_item), ItemRow.state == LEASED)
    locked = leased.order_by(ItemRow.id).with_for_update()
    return [by_item[id_] for id_, fence in session.execute(locked) if by_item[id_].lease.fence == fence]


class Recorded(NamedTuple):
    """The items that were written, and the jobs with an item of which a failed verdict was replaced."""

    items: list[int]
    repaired_jobs: set[int]


def record(session: Session, results: Sequence[ItemResult]) -> Recorded:
    """Write verdicts and rewards of the items whose leases are valid. The rest is dropped.

    If a verdict was stored by another worker in the meantime, the reward is computed from that one. Call `finish`
    for the jobs of the results and for the repaired ones afterwards.
    """
    if not (ours := lock_valid(session, results)):
        return Recorded([], set())
    completions.add_questions(session, (result.questions for result in ours))
    new, shared = _distinct(ours)
    in_order = [new[name] for name in sorted(new)]  # one order for all writers: two cannot block each other
    written = completions.write_verdicts(session, in_order) if new else {}
    uncontested = written.keys() - shared
    contested = [result for result in ours if any(name not in uncontested for name, _ in result.new)]
    read = completions.known_verdicts(session, [(result.lease.completion_id, result.questions) for result in contested])
    stored = {result.lease.item_id: found for result, found in zip(contested, read, strict=True)}
    own = select(JobRow.id, JobRow.min_coverage).where(JobRow.id.in_({result.lease.job_id for result in ours}))
    least: dict[int, float | None] = dict(session.execute(own).all())
    rows: list[dict[str, object]] = []
    for one in ours:
        final = {verdict.criterion: verdict for verdict in one.verdicts} | stored.get(one.lease.item_id, {})
        columns = reward_columns(one.rubric, final.values(), least[one.lease.job_id])
        released = {"id": one.lease.item_id, "lease_until": None, "worker": None}
        rows.append({**released, "question_set": one.questions.digest, **columns})
    session.execute(update(ItemRow), rows)
    replaced = [name for name, attempts in written.items() if attempts > 1 and new[name][3].outcome != "failed"]
    repaired = recompute(session, replaced) if replaced else set[int]()
    return Recorded([result.lease.item_id for result in ours], repaired)


def _distinct(
    results: Sequence[ItemResult],
) -> tuple[dict[VerdictName, tuple[VerdictName, int, int, Verdict]], set[VerdictName]]:
    """Return what is to be written, each verdict once, and the names that several verdicts have.

    Two items of one batch may ask the same question. Of several verdicts a settled one is written.
    """
    rows: dict[VerdictName, tuple[VerdictName, int, int, Verdict]] = {}
    times = Counter(name for result in results for name, _ in result.new)
    for result in results:
        for name, verdict in result.new:
            if name not in rows or rows[name][3].outcome == "failed":
                rows[name] = (name, result.lease.rubric_id, result.lease.judge_id, verdict)
    return rows, {name for name, number in times.items() if number > 1}


def holders(session: Session) -> set[str]:
    """Return the names of the workers that hold leases, or parts of the limits of judges."""
    names = session.scalars(select(ItemRow.worker).where(ItemRow.state == LEASED).distinct()).all()
    return {*filter(None, names), *session.scalars(select(ShareRow.worker).where(ShareRow.until.is_(None)))}


def reconcile(
    session: Session,
    *,
    max_leases: int,
    dead: Collection[str] = (),
    gone: Collection[str] = (),
    announce_all: bool = False,
) -> int:
    """Release leases that have expired or whose worker is dead, and announce pending work without a message, or all.

    Of workers that are ``gone`` only the parts of limits are released. An item that lost ``max_leases`` leases fails as
    ``worker_lost``. Workers that were last seen more than `KEPT_SECONDS` ago are removed. Returns the number of leases.
    """
    now = database_time(session)
    is_over = ItemRow.lease_until < now
    if dead:
        is_over |= ItemRow.worker.in_(dead)
    over = select(ItemRow.id).where(ItemRow.state == LEASED, is_over).with_for_update(skip_locked=True)
    fails = ItemRow.lost + 1 >= max_leases
    freed = {"lease_until": None, "worker": None, "lost": ItemRow.lost + 1}
    freed["state"] = case((fails, FAILED), else_=PENDING)
    freed["null_reason"] = case((fails, _WORKER_LOST), else_=ItemRow.null_reason)
    released = update(ItemRow).where(ItemRow.id.in_(over)).values(freed).returning(ItemRow.id)
    count = len(session.execute(released, execution_options={"synchronize_session": False}).all())
    for row in session.scalars(select(ShareRow).where(ShareRow.worker.in_({*dead, *gone}), ShareRow.until.is_(None))):
        leaves = judge.value.leaf_judges if (judge := session.get(JudgeRow, row.judge_id)) is not None else ()
        row.until = now + 60.0 * any(one.endpoint.requests_per_minute for one in leaves)  # as in `leave`
    session.execute(delete(ShareRow).where(ShareRow.until <= now))
    finish(session)
    lost = OutboxRow.sent_at.is_not(None) if announce_all else OutboxRow.sent_at < now - UNREAD_SECONDS
    lost_ids = session.scalars(select(OutboxRow.id).where(lost).with_for_update(skip_locked=True)).all()
    session.execute(delete(OutboxRow).where(OutboxRow.id.in_(lost_ids)))
    busy = select(ItemRow.judge_id).where(ItemRow.state == LEASED)
    pending = select(ItemRow.judge_id, func.count()).where(ItemRow.state == PENDING).group_by(ItemRow.judge_id)
    for judge_id, number in session.execute(pending if announce_all else pending.where(ItemRow.judge_id.not_in(busy))):
        publish(session, judge_id, number)
    # those that another transaction removes are skipped: waiting for it could be a deadlock
    old = select(WorkerRow.name).where(WorkerRow.seen_at < now - KEPT_SECONDS).with_for_update(skip_locked=True)
    session.execute(delete(WorkerRow).where(WorkerRow.name.in_(list(session.scalars(old)))))
    return count


_WORKER_LOST = "worker_lost: every worker that claimed this item died; try again with `rubricsvc jobs retry`"
REASON_CHARS = 300  # characters kept of a ``null_reason``


def reward_columns(rubric: Rubric, final: Collection[Verdict], min_coverage: float | None) -> dict[str, object]:
    """Return the columns of a scored item: its reward and state. ``min_coverage`` is the job's own, if it has one."""
    reward = reward_or_null(rubric, final, min_coverage=min_coverage)
    failed = sum(verdict.outcome == "failed" for verdict in final)
    return {
        "state": FAILED if failed else DONE,
        "reward": reward.value,
        "coverage": reward.coverage,
        "formula": reward.formula,
        "vetoed_by": reward.vetoed_by,
        "null_reason": (reward.null_reason or "")[:REASON_CHARS] or None,
        "verdicts": len(final),
        "failed_verdicts": failed,
    }


def recompute(session: Session, replaced: Sequence[VerdictName]) -> set[int]:
    """Recompute the rewards of failed items whose failed verdicts were replaced; return their jobs.

    An item's reward is always that of the verdicts that are read for it. So this waits for a transaction that replaces
    another verdict of the same item.
    """
    repaired: set[int] = set()
    for chunk in batched(replaced):
        asked = select(ItemRow.id).join(QuestionRow, QuestionRow.question_set == ItemRow.question_set)
        sharing = asked.where(tuple_(ItemRow.completion_id, QuestionRow.fingerprint).in_(chunk))
        failed = select(ItemRow.id, ItemRow.job_id, ItemRow.rubric_id, JobRow.min_coverage)
        failed = failed.join(JobRow, JobRow.id == ItemRow.job_id).where(ItemRow.state == FAILED)
        locked = failed.where(ItemRow.id.in_(sharing.where(ItemRow.state == FAILED))).order_by(ItemRow.id)
        items = session.execute(locked.with_for_update(of=ItemRow)).all()
        rubrics = {id_: session.get_one(RubricRow, id_).value for id_ in {item.rubric_id for item in items}}
        current = completions.verdicts_of_items(session, [item.id for item in items])
        rows = []
        for item in items:
            columns = reward_columns(rubrics[item.rubric_id], current[item.id], item.min_coverage)
            rows.append({"id": item.id, **columns})
        if rows:
            session.execute(update(ItemRow), rows)
            repaired |= {item.job_id for item in items}
    return repaired


def finish(session: Session, job_ids: Iterable[int] | None = None) -> int:
    """Close the jobs (of these, or all) that have no open item; return how many.

    A job whose last failed item was repaired by another job becomes completed. Call it in a separate transaction
    after recording results: the last of two workers to commit sees both.
    """
    open_item = select(ItemRow.id).where(ItemRow.job_id == JobRow.id, ItemRow.state.in_((PENDING, LEASED))).exists()
    bad_item = select(ItemRow.id).where(ItemRow.job_id == JobRow.id, ItemRow.state == FAILED).exists()
    unfinished = JobRow.status.in_((QUEUED, IN_PROGRESS))
    query = update(JobRow).where(~open_item, unfinished | (JobRow.status == COMPLETED_WITH_FAILURES) & ~bad_item)
    if job_ids is not None:
        query = query.where(JobRow.id.in_(list(job_ids)))
    status = case((JobRow.exhausted, BUDGET_EXHAUSTED), (bad_item, COMPLETED_WITH_FAILURES), else_=COMPLETED)
    finished_at = func.coalesce(JobRow.finished_at, datetime.now(UTC))
    return len(session.execute(query.values(status=status, finished_at=finished_at).returning(JobRow.id)).all())
