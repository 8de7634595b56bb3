"""Jobs: submit, read, rescore, cancel, retry; their items with their rewards; their budgets in US dollars.

Items are scored through `leases`.

Before its calls a worker reserves their maximum cost under the lock of the job's row; afterwards it writes their actual
cost. So spent and reserved money together never exceed the budget, however many workers share a job. All that a killed
worker had reserved counts as spent, because its calls under way are unknown. If the worker was only silent, its next
write corrects the sum.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVarTuple

from sqlalchemy import Row, Select, String, case, cast, func, or_, select, update
from sqlalchemy.orm import Session, aliased, joinedload

from rubricsvc.core.fingerprint import digest
from rubricsvc.core.generation import NO_RUBRIC
from rubricsvc.core.judge import Judge, voting_summary
from rubricsvc.core.states import APPROVED, ItemSort
from rubricsvc.core.verdict import Vote
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError, cut
from rubricsvc.schemas.jobs import GenerationSummary, JobProgress, JobSummary, ReservedBudget
from rubricsvc.store import completions, judges, leases, rubrics
from rubricsvc.store.session import PUBLISHED, add_new, batched, existing, insert, name_of, rows_with
from rubricsvc.store.tables import (
    CANCELLED,
    DONE,
    FAILED,
    GENERATE,
    IN_PROGRESS,
    LEASED,
    PENDING,
    QUEUED,
    SCORE,
    CompletionRow,
    ItemRow,
    JobRow,
    PromptRow,
    ReplyRow,
    ReservationRow,
    RubricRow,
    VerdictRow,
)

Ts = TypeVarTuple("Ts")


def submit(
    session: Session,
    *,
    judge_id: int,
    items: Iterable[tuple[int, int]],
    key: str | None = None,
    name: str = "",
    budget: float | None = None,
    min_coverage: float | None = None,
    allow_drafts: bool = False,
) -> JobRow:
    """Store a job over pairs of (completion id, rubric id), and wake workers for it.

    The same ``key`` gives the same job; without a key, the same judge, items and ``min_coverage`` do, which is used
    instead of the rubrics' own. ``budget`` is in US dollars. With ``allow_drafts`` rubrics need no approval.
    """
    pairs = sorted(set(items))
    if not pairs:
        raise InvalidError("nothing to score: no completion has a rubric", hint="import completions and rubrics first")
    if budget is not None:
        check_budget(judges.get(session, judge_id).value, budget)
    content_key = digest(judge_id, pairs, *([] if min_coverage is None else [float(min_coverage) + 0.0]))
    rows = [{"completion_id": completion_id, "rubric_id": rubric_id} for completion_id, rubric_id in pairs]
    options: dict[str, Any] = {"key": key, "name": name, "budget": budget, "min_coverage": min_coverage}
    job, is_new = add(session, rows, judge_id=judge_id, content_key=content_key, **options)
    if is_new:
        if not allow_drafts:
            rubrics.reject_drafts(session, select(ItemRow.rubric_id).where(ItemRow.job_id == job.id))
        foreign = (
            select(ItemRow.completion_id, RubricRow.name, RubricRow.version)
            .join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
            .join(RubricRow, RubricRow.id == ItemRow.rubric_id)
            .where(ItemRow.job_id == job.id, RubricRow.prompt_id != CompletionRow.prompt_id)  # never true of none
        )
        if (found := session.execute(foreign.limit(1)).first()) is not None:
            id_, rubric, version = found
            hint = f"score it by a rubric of its own prompt, or keep {rubric!r} for any prompt: without a prompt_id"
            raise InvalidError(f"rubric {rubric}@{version} belongs to another prompt than completion {id_}", hint=hint)
    return job


def add(
    session: Session,
    items: Sequence[dict[str, Any]],
    *,
    judge_id: int,
    content_key: str,
    key: str | None,
    name: str,
    budget: float | None,
    **columns: Any,
) -> tuple[JobRow, bool]:
    """Add a job with these items and wake workers, or return the job of this key; and whether it is new.

    The ``content_key`` is the digest of what is asked for, and the key of a job that is given none.
    """
    name_of("a job's name", name, least=0)
    if key is not None:
        name_of("an idempotency key", key)
    values = {"key": key or content_key, "content_key": content_key, "judge_id": judge_id, "budget": budget, **columns}
    values["name"] = name
    statement = insert(session, JobRow).values(**values).on_conflict_do_nothing(index_elements=["key"])
    job_id = session.scalar(statement.returning(JobRow.id))
    if job_id is None:
        job = session.scalars(select(JobRow).where(JobRow.key == values["key"])).one()
        if job.content_key != content_key:
            raise ConflictError(f"idempotency key {key!r} belongs to another job: {job.id}", hint="choose another key")
        _reject_other_budget(job, budget)
        return job, False
    add_new(session, ItemRow, [{"job_id": job_id, "judge_id": judge_id, **item} for item in items])
    leases.publish(session, judge_id, len(items))
    return get(session, job_id), True


def rescore(
    session: Session,
    job_id: int,
    *,
    rubric: Sequence[int | str] = (),
    budget: float | None = None,
    min_coverage: float | None = None,
    allow_drafts: bool = False,
) -> JobRow:
    """Submit a job's completions again to its judge, under the newest approved version of each of its rubrics.

    A rubric without an approved version newer than the job's keeps the newest version that the job used.

    Only questions that are not answered yet will be asked. Where neither a rubric nor ``min_coverage`` has changed,
    this is the job itself. Where only ``min_coverage`` has changed, rewards are computed from the stored verdicts,
    failed ones included.

    ``rubric`` are versions to use in place of the newest, as `rubrics.get` takes them; drafts with ``allow_drafts``.
    """
    job = scoring(session, job_id)
    used = select(ItemRow.completion_id, ItemRow.rubric_id, RubricRow.name).join(
        RubricRow, RubricRow.id == ItemRow.rubric_id
    )
    scored = session.execute(used.where(ItemRow.job_id == job_id)).all()
    rubric_ids = rubrics.newest_of(session, {rubric_id for _, rubric_id, _ in scored})
    given = [rubrics.get(session, ref, allow_drafts=allow_drafts) for ref in rubric]
    if not allow_drafts:
        rubrics.reject_drafts(session, [row.id for row in given])
    for row in given:
        if row.name not in rubric_ids:
            names = ", ".join(sorted(rubric_ids))
            raise InvalidError(f"job {job_id} has no rubric {row.name!r}", hint=f"it has {cut(names, 200)}")
        rubric_ids[row.name] = row.id
    wanted = {(completion_id, rubric_ids[name]) for completion_id, _, name in scored}
    least = job.min_coverage if min_coverage is None else min_coverage
    if least == job.min_coverage and wanted == {(completion_id, rubric_id) for completion_id, rubric_id, _ in scored}:
        if budget is not None:
            _reject_other_budget(job, budget)
        return job
    options: dict[str, Any] = {"name": job.name, "budget": budget, "min_coverage": least}
    new = submit(session, judge_id=job.judge_id, items=wanted, allow_drafts=True, **options)
    if least != job.min_coverage and PUBLISHED in session.info:  # only a new job publishes
        _copy_rewards(session, job_id, new.id)
        leases.finish(session, [new.id])
        session.expire_all()
    return get(session, new.id)


def _reject_other_budget(job: JobRow, budget: float | None) -> None:
    if budget == job.budget:
        return
    has, given = ("no budget" if one is None else f"a budget of ${one:g}" for one in (job.budget, budget))
    message = f"job {job.id} has the same completions, rubrics and judge and {has}, and this request has {given}"
    hint = f"change the budget with `rubricsvc jobs retry {job.id} --budget DOLLARS`, or submit with the same one"
    raise ConflictError(message, hint=hint)


def completion_ids(session: Session, job_id: int, *, rubric: str | None = None) -> list[int]:
    """Return the ids of a job's completions, ascending; with ``rubric`` of those scored under a version of it."""
    query = select(ItemRow.completion_id).where(ItemRow.job_id == job_id).distinct().order_by(ItemRow.completion_id)
    if rubric is not None:
        query = query.join(RubricRow, RubricRow.id == ItemRow.rubric_id).where(RubricRow.name == rubric)
    return list(session.scalars(query))


def get(session: Session, job_id: int) -> JobRow:
    """Return the row."""
    return existing(session, JobRow, "job", job_id)


def scoring(session: Session, job_id: int) -> JobRow:
    """Return the row of a job that scores completions."""
    job = get(session, job_id)
    if job.kind != SCORE:
        hint = f"see what it made with `rubricsvc jobs items {job_id}`, or name a job that scores completions"
        raise InvalidError(f"job {job_id} generates rubrics and scores nothing", hint=hint)
    return job


def progress(session: Session, job_id: int) -> JobProgress:
    """Return the number of items by state, and of verdicts."""
    return progress_of(session, [job_id])[job_id]


def progress_of(session: Session, job_ids: Sequence[int]) -> dict[int, JobProgress]:
    """Return the progress of each of these jobs."""
    counted = (func.count(), func.sum(ItemRow.verdicts), func.sum(ItemRow.failed_verdicts))
    query = select(ItemRow.job_id, ItemRow.state, *counted).where(ItemRow.job_id.in_(job_ids))
    by_job: dict[int, dict[str, tuple[int, ...]]] = {job_id: {} for job_id in job_ids}
    for job_id, state, *sums in session.execute(query.group_by(ItemRow.job_id, ItemRow.state)):
        by_job[job_id][state] = tuple(map(int, sums))
    found = {}
    for job_id, by_state in by_job.items():
        total, written, failed = map(sum, zip((0, 0, 0), *by_state.values(), strict=True))
        states = {state: by_state.get(state, (0,))[0] for state in (PENDING, LEASED, DONE, FAILED, CANCELLED)}
        found[job_id] = JobProgress(total=total, verdicts=written - failed, failed_verdicts=failed, **states)
    return found


def cancel(session: Session, job_id: int) -> JobRow:
    """Stop a job; finished items keep their rewards. Workers drop leased items at their next heartbeat."""
    # before its items: `finish` sees none of the change or all of it
    existing(session, JobRow, "job", job_id, lock=True)
    session.execute(
        update(ItemRow)
        .where(ItemRow.job_id == job_id, ItemRow.state.in_((PENDING, LEASED)))
        .values(state=CANCELLED, lease_until=None, worker=None, fence=ItemRow.fence + 1)
    )
    session.execute(
        update(JobRow)
        .where(JobRow.id == job_id, JobRow.status.in_((QUEUED, IN_PROGRESS)))
        .values(status=CANCELLED, finished_at=datetime.now(UTC))
    )
    session.expire_all()
    return get(session, job_id)


_SCORED = ("reward", "coverage", "vetoed_by", "null_reason", "question_set")
"""Columns that are null until an item is scored."""


def retry(session: Session, job_id: int, *, budget: float | None = None) -> int:
    """Reopen the failed and cancelled items; return how many. Only missing and failed verdicts are asked for.

    ``budget`` is for the whole job, what it has spent included.
    """
    job = existing(session, JobRow, "job", job_id, lock=True)  # before its items, as in `cancel`
    if (gate_judge := (job.settings or {}).get("gate_judge")) is not None:
        check_budget(judges.get(session, gate_judge).value, budget)
    write_off(session, job_id)
    check_budget(job.judge.value, budget, least=job.spent + reserved_totals(session, job_id).held)
    if job.exhausted and budget is None:
        message = f"job {job_id} has spent ${job.spent:.4g} of its budget of ${job.budget:.4g}"
        hint = f"raise the budget: rubricsvc jobs retry {job_id} --budget {2 * (job.budget or 0):g}"
        raise InvalidError(message, hint=hint)
    job.budget, job.exhausted = job.budget if budget is None else budget, False
    session.flush()
    no_rubric = ItemRow.prompt_id.is_not(None) & ItemRow.null_reason.startswith(NO_RUBRIC)
    session.execute(  # its replies are stored, so that the same samples would fail again
        update(ItemRow)
        .where(ItemRow.job_id == job_id, ItemRow.state == FAILED, no_rubric)
        .values(retries=ItemRow.retries + 1)
    )
    reopened = session.execute(
        update(ItemRow)
        .where(ItemRow.job_id == job_id, ItemRow.state.in_((FAILED, CANCELLED)))
        .values({"state": PENDING, "lost": 0, "verdicts": 0, "failed_verdicts": 0, **dict.fromkeys(_SCORED)})
        .returning(ItemRow.id)
    ).all()
    if reopened:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(status=QUEUED, finished_at=None))
        leases.publish(session, job.judge_id, len(reopened))
    return len(reopened)


def summary(session: Session, job_id: int) -> JobSummary:
    """Return the results of a job so far. This reads every verdict of the job; watch `jobs.progress` instead."""
    rewards = select(func.count(ItemRow.reward), func.avg(ItemRow.reward)).where(ItemRow.job_id == job_id)
    vetoed = (
        select(ItemRow.vetoed_by, func.count())
        .where(ItemRow.job_id == job_id, ItemRow.vetoed_by.is_not(None))
        .group_by(ItemRow.vetoed_by)
        .order_by(func.count().desc(), ItemRow.vetoed_by)
    )
    behind = completions.with_verdicts(select(ItemRow.id).where(ItemRow.job_id == job_id))
    prompt, cached = (VerdictRow.details["usage", name].as_float() for name in ("prompt", "cached"))
    counts = (case((cached.is_not(None), prompt)), cached)  # null where the engine does not count cached tokens
    sums: list[Any] = [func.sum(column) for column in (*counts, *completions.quote_counts(session))]
    by_reason = behind.with_only_columns(VerdictRow.reason, func.count(), *sums).group_by(VerdictRow.reason)
    count, mean = session.execute(rewards).one()
    rows = session.execute(by_reason).all()
    prompts, from_cache, quotes, found = (sum(row[number] or 0 for row in rows) for number in range(2, 6))
    job = get(session, job_id)
    judge = job.judge.valid
    several = judge is not None and (judge.members or judge.pairwise)
    voted = session.scalars(behind.with_only_columns(VerdictRow.details["votes"])) if several else ()
    votes = (tuple(Vote.model_validate(vote) for vote in each or ()) for each in voted)
    return JobSummary(
        rewards=count,
        mean_reward=mean,
        reasons={reason: number for reason, number, *_ in rows if reason is not None},
        vetoed={str(key): number for key, number in session.execute(vetoed)},
        reserved=reserved_totals(session, job_id),
        cached_share=round(from_cache / prompts, 4) if prompts else None,
        quotes=int(quotes) or None,
        quotes_not_found=int(quotes - found) if quotes else None,
        generation=_generation_summary(session, job),
        voting=voting_summary(judge, votes) if judge and several else {},
    )


def rewarded_groups(
    session: Session, job_id: int, *, least: int, after: int, limit: int
) -> dict[int, list[list[ItemRow]]]:
    """Return the items with a reward of up to ``limit`` prompts with ids above ``after``, by rubric and id.

    Only rubrics with ``least`` of them or more count.
    """
    prompt_id = CompletionRow.prompt_id
    rewarded = (ItemRow.job_id == job_id, ItemRow.reward.is_not(None), CompletionRow.id == ItemRow.completion_id)
    prompts = select(prompt_id).where(*rewarded, prompt_id > after).group_by(prompt_id, ItemRow.rubric_id)
    prompts = prompts.having(func.count() >= least).distinct().order_by(prompt_id).limit(limit)
    query = select(ItemRow).where(*rewarded, prompt_id.in_(prompts.correlate(None)))
    query = query.options(joinedload(ItemRow.completion), joinedload(ItemRow.rubric))
    found: dict[int, list[list[ItemRow]]] = {}
    ordered = session.scalars(query.order_by(prompt_id, ItemRow.rubric_id, ItemRow.id))
    for (id_, _), rows in groupby(ordered, key=lambda row: (row.completion.prompt_id, row.rubric_id)):
        if len(group := list(rows)) >= least:
            found.setdefault(id_, []).append(group)
    return found


def _generation_summary(session: Session, job: JobRow) -> GenerationSummary | None:
    """Return the results of a job so far; None if it scores completions."""
    if job.kind != GENERATE:
        return None
    of_job = ItemRow.job_id == job.id
    made = select(RubricRow.state, RubricRow.provenance).join(ItemRow, ItemRow.rubric_id == RubricRow.id)
    rows = session.execute(made.where(of_job, ItemRow.state == DONE)).all()
    gates = [(provenance or {}).get("gate") or {} for _, provenance in rows]
    refused = Counter(reason for gate in gates for reason in gate.get("refused_by", ()))
    failed = session.scalars(select(ItemRow.null_reason).where(of_job, ItemRow.state == FAILED))
    reasons = Counter((reason or "unknown").partition(":")[0] for reason in failed)
    judge = job.judge.valid
    asked_again = select(func.sum(ReplyRow.answered - 1)).where(ReplyRow.item_id.in_(select(ItemRow.id).where(of_job)))
    return GenerationSummary(
        prompts=session.scalar(select(func.count()).where(of_job)) or 0,
        rubrics=len(rows),
        drafts=sum(state != APPROVED for state, _ in rows),
        refused_by=dict(refused.most_common()),
        reasons=dict(reasons.most_common()),
        cost=None if judge is None or (judge.unpriced and not job.spent) else round(job.spent, 6),
        asked_again=int(session.scalar(asked_again) or 0),
    )


_TEXTS = (
    joinedload(ItemRow.completion).selectinload(CompletionRow.prompt),
    joinedload(ItemRow.rubric),
    joinedload(ItemRow.prompt),
)
"""Loads the completion, prompt and rubric of an item with it."""


def items(
    session: Session,
    job_id: int,
    *,
    sort: ItemSort = "id",
    after: int = 0,
    limit: int = 100,
    rewarded: bool | None = None,
) -> list[ItemRow]:
    """Return up to ``limit`` items that follow the item ``after``, with their completion, prompt and rubric.

    ``rewarded`` selects those with or without a reward.
    """
    query = _in_order(session, select(ItemRow).options(*_TEXTS), job_id, sort, after)
    if rewarded is not None:
        query = query.where(ItemRow.reward.is_not(None) if rewarded else ItemRow.reward.is_(None))
    return list(session.scalars(query.limit(limit)))


def newest_items(judge_id: int, job_id: int | None = None) -> Select[int]:
    """Return a query of the judge's newest scored item on each completion under each rubric version; of one job."""
    query = select(func.max(ItemRow.id)).where(ItemRow.judge_id == judge_id, ItemRow.question_set.is_not(None))
    if job_id is not None:
        query = query.where(ItemRow.job_id == job_id)
    return query.group_by(ItemRow.completion_id, ItemRow.rubric_id)


def newest_scored(session: Session, judge_id: int, job_id: int | None, after: int, limit: int) -> list[ItemRow]:
    """Return the judge's newest scored items after one, by id, with their texts; see `newest_items`."""
    where = (ItemRow.id.in_(newest_items(judge_id, job_id)), ItemRow.id > after)
    return list(session.scalars(select(ItemRow).options(*_TEXTS).where(*where).order_by(ItemRow.id).limit(limit)))


def _in_order(session: Session, query: Select[*Ts], job_id: int, sort: ItemSort, after: int) -> Select[*Ts]:
    """Restrict a query of items to those of the job that follow the item ``after`` (0: all) in this order.

    Items without a reward are last, whether rewards rise or fall; ties are in the order of ids.
    """
    query = query.where(ItemRow.job_id == job_id)
    if sort == "id":
        return query.where(ItemRow.id > after).order_by(ItemRow.id)
    missing, falling = ItemRow.reward.is_(None), sort == "-reward"
    query = query.order_by(missing, ItemRow.reward.desc() if falling else ItemRow.reward, ItemRow.id)
    if not after:
        return query
    last = session.execute(select(ItemRow.reward).where(ItemRow.id == after, ItemRow.job_id == job_id)).first()
    if last is None:
        raise NotFoundError(f"job {job_id} has no item {after}", hint="continue after the id of an item of the job")
    (reward,) = last
    if reward is None:
        return query.where(missing, ItemRow.id > after)
    further = ItemRow.reward < reward if falling else ItemRow.reward > reward
    return query.where(missing | further | (ItemRow.reward == reward) & (ItemRow.id > after))


def unrewarded(session: Session, job_id: int) -> dict[str, int]:
    """Count the items without a reward by reason, or by state where no reason is stored; the most common first."""
    reason = func.coalesce(ItemRow.null_reason, ItemRow.state)
    query = select(reason, func.count()).where(ItemRow.job_id == job_id, ItemRow.reward.is_(None))
    return dict(session.execute(query.group_by(reason).order_by(func.count().desc(), reason)).all())


def scored_items(session: Session, ids: Iterable[int]) -> dict[int, ItemRow]:
    """Return those of these items that score a completion, with its digest, by id."""
    digest = joinedload(ItemRow.completion, innerjoin=True).load_only(CompletionRow.digest)
    query = select(ItemRow).where(ItemRow.completion_id.is_not(None)).options(digest)
    return {row.id: row for (row,) in rows_with(session, query, ItemRow.id, ids)}


def rubrics_of(session: Session, job_id: int) -> Sequence[RubricRow]:
    """Return the rubric versions of a job's items, by id."""
    ids = select(ItemRow.rubric_id).where(ItemRow.job_id == job_id)
    return session.scalars(select(RubricRow).where(RubricRow.id.in_(ids)).order_by(RubricRow.id)).all()


def rewards(
    session: Session,
    job_id: int,
    *,
    sort: ItemSort = "id",
    after: int = 0,
    limit: int | None = None,
    policy: str | None = None,
    text_chars: int = 0,
) -> Sequence[Row[Any]]:
    """Return the items of a job with the fields of `schemas.Item`, without verdicts; by default all, by id."""
    text = func.coalesce(
        CompletionRow.content["text"].as_string(), PromptRow.content[("messages", 0, "content")].as_string()
    )
    without_reason = ItemRow.reward.is_(None) & ItemRow.state.in_((CANCELLED, FAILED))
    columns = {
        "id": ItemRow.id,
        "prompt_id": PromptRow.id,
        "prompt_external_id": PromptRow.external_id,
        "completion_id": ItemRow.completion_id,
        "completion_external_id": CompletionRow.content["id"].as_string(),
        "policy": func.coalesce(CompletionRow.policy, ""),
        **({"text": func.substr(text, 1, text_chars)} if text_chars else {}),
        "rubric_id": ItemRow.rubric_id,
        "rubric": RubricRow.name + "@" + cast(RubricRow.version, String),
        "state": ItemRow.state,
        "reward": ItemRow.reward,
        "null_reason": func.coalesce(ItemRow.null_reason, case((without_reason, ItemRow.state))),
        "coverage": ItemRow.coverage,
        "formula": ItemRow.formula,
        "vetoed_by": ItemRow.vetoed_by,
    }
    query = (
        select(*(column.label(name) for name, column in columns.items()))
        .join(CompletionRow, CompletionRow.id == ItemRow.completion_id, isouter=True)
        .join(PromptRow, PromptRow.id == func.coalesce(ItemRow.prompt_id, CompletionRow.prompt_id))
        .join(RubricRow, RubricRow.id == ItemRow.rubric_id, isouter=True)
    )
    query = _in_order(session, query, job_id, sort, after)
    if policy is not None:
        query = query.where(CompletionRow.policy == policy)
    return session.execute(query.limit(limit)).all()


def _copy_rewards(session: Session, from_job: int, to_job: int) -> None:
    """Compute the rewards of a new job's items from the verdicts of another job on the same completions and rubrics.

    Failed verdicts are taken over too, so that no judge is asked. What the other job has not scored stays pending.
    """
    source = aliased(ItemRow)
    same = (source.completion_id == ItemRow.completion_id) & (source.rubric_id == ItemRow.rubric_id)
    pairs = (
        select(ItemRow.id, ItemRow.rubric_id, source.id.label("source_id"), source.question_set)
        .join(source, same)
        .where(ItemRow.job_id == to_job, source.job_id == from_job, source.question_set.is_not(None))
    )
    least = session.get_one(JobRow, to_job).min_coverage
    for chunk in batched(session.execute(pairs).all()):
        rubrics = {id_: session.get_one(RubricRow, id_).value for id_ in {row.rubric_id for row in chunk}}
        found = completions.verdicts_of_items(session, [row.source_id for row in chunk])
        rows = [
            {
                "id": row.id,
                "question_set": row.question_set,
                **leases.reward_columns(rubrics[row.rubric_id], found[row.source_id], least),
            }
            for row in chunk
        ]
        session.execute(update(ItemRow), rows)


_ROUNDING = 1e-9  # dollars below which a sum is a rounding error

_SHARE = 0.25  # maximum share of the free money that one worker reserves ahead, so that other workers find some

_EXHAUSTED = "budget: used up before this item was started; continue with `rubricsvc jobs retry ID --budget USD`"


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a request for money: the dollars that are reserved now, and whether the job is over its budget.

    Calls under way may still release some if it ``may_return``.
    """

    granted: float = 0.0
    may_return: bool = False
    exhausted: bool = False


def check_budget(judge: Judge, budget: float | None, *, least: float = 0.0) -> None:
    """Check that a job of this judge can be held to ``budget``."""
    if budget is None:
        return
    if not least < budget < 1e9:
        committed = f"; ${least:.4g} are spent or reserved" if least else ""
        hint = "give a larger one"
        raise InvalidError(f"budget {budget:g} is not above {least:.4g} US dollars{committed}", hint=hint)
    if judge.unpriced:
        names = ", ".join(judge.unpriced)
        hint = "set endpoint.price in a judge file and add it: `judges show NAME --yaml`, then `judges add -f`"
        raise InvalidError(f"unknown price: {names}", hint=hint)


def reserve(
    session: Session, job_id: int, worker: str, *, spent: float, held: float, least: float = 0.0, most: float = 0.0
) -> Grant:
    """Write what a worker has spent and holds, and reserve money for its next calls.

    ``spent`` is since the worker last wrote, and ``held`` what its calls under way need. On top, ``least`` is reserved
    or nothing, and up to ``most`` if that leaves enough for other workers. All in US dollars.
    """
    job = existing(session, JobRow, "job", job_id, lock=True)
    query = select(ReservationRow).where(ReservationRow.job_id == job_id)
    rows = session.scalars(query.where(or_(~ReservationRow.lost, ReservationRow.worker == worker)))
    others = {row.worker: row for row in rows}
    mine = others.pop(worker, None)
    job.spent += spent - (mine.dollars if mine is not None and mine.lost else 0.0)
    theirs = sum(row.dollars for row in others.values())
    free = math.inf if job.budget is None else job.budget - job.spent - theirs - held
    granted = max(least, min(most, _SHARE * free)) if free >= least and not job.exhausted else 0.0
    mine = mine or ReservationRow(job_id=job_id, worker=worker)
    mine.dollars, mine.lost = held + granted, False
    if mine.dollars > _ROUNDING:
        session.add(mine)
    elif mine in session:
        session.delete(mine)
    return Grant(granted, theirs + held > _ROUNDING, job.exhausted)


_LEASE = (ItemRow.job_id == ReservationRow.job_id, ItemRow.worker == ReservationRow.worker, ItemRow.state == LEASED)
_ORPHANED = ~ReservationRow.lost & ~select(ItemRow.id).where(*_LEASE).exists()
"""Matches reservations whose worker holds no lease of the job, so that it has no call under way: it was killed."""


def orphaned_jobs(session: Session) -> list[int]:
    """Return the jobs with reservations of workers that hold no lease of them, because they were killed."""
    return list(session.scalars(select(ReservationRow.job_id).where(_ORPHANED).distinct()))


def write_off(session: Session, job_id: int) -> float:
    """Count the reservations of workers that hold no lease of this job as spent; return the dollars."""
    job = existing(session, JobRow, "job", job_id, lock=True)
    orphaned = update(ReservationRow).where(ReservationRow.job_id == job_id, _ORPHANED).values(lost=True)
    without_sync = {"synchronize_session": False}
    lost = sum(session.scalars(orphaned.returning(ReservationRow.dollars), execution_options=without_sync))
    job.spent += lost
    return lost


def reserved_totals(session: Session, job_id: int) -> ReservedBudget:
    """Return what workers hold of the job's budget, and what was lost with killed ones."""
    total = func.sum(ReservationRow.dollars)
    query = select(ReservationRow.lost, total).where(ReservationRow.job_id == job_id).group_by(ReservationRow.lost)
    sums: dict[bool, float] = dict(session.execute(query).all())
    return ReservedBudget(held=sums.get(False, 0.0), lost=sums.get(True, 0.0))


def exhaust(session: Session, job_id: int) -> None:
    """Start nothing more of this job: pending items are cancelled, items under way end."""
    session.execute(update(JobRow).where(JobRow.id == job_id).values(exhausted=True))  # locks it before its items
    session.execute(
        update(ItemRow)
        .where(ItemRow.job_id == job_id, ItemRow.state == PENDING)
        .values(state=CANCELLED, null_reason=_EXHAUSTED, fence=ItemRow.fence + 1)
    )
