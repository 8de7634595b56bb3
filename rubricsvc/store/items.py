"""Items of a job: their rewards, their order by reward, and why some have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVarTuple

from sqlalchemy import Select, String, case, cast, func, select, update
from sqlalchemy.orm import Session, aliased, joinedload

from rubricsvc.core.states import ItemSort
from rubricsvc.errors import NotFoundError
from rubricsvc.store import verdicts
from rubricsvc.store.leases import reward_columns
from rubricsvc.store.session import Database, batched, insert, rows_with
from rubricsvc.store.tables import (
    CANCELLED,
    FAILED,
    CompletionRow,
    ItemRow,
    JobRow,
    PromptRow,
    ReplyRow,
    RubricRow,
)

Ts = TypeVarTuple("Ts")

_TEXTS = (
    joinedload(ItemRow.completion).selectinload(CompletionRow.prompt),
    joinedload(ItemRow.rubric),
    joinedload(ItemRow.prompt),
)
"""Loads the completion, prompt and rubric of an item with it."""


def page(
    session: Session,
    job_id: int,
    *,
    sort: ItemSort = "id",
    after: int = 0,
    limit: int = 100,
    policy: str | None = None,
    rewarded: bool | None = None,
) -> list[ItemRow]:
    """Return up to ``limit`` items that follow the item ``after``, with their completion, prompt and rubric.

    ``rewarded`` selects those with or without a reward.
    """
    query = _in_order(session, select(ItemRow).options(*_TEXTS), job_id, sort, after)
    if policy is not None:
        query = query.where(ItemRow.completion.has(policy=policy))
    if rewarded is not None:
        query = query.where(ItemRow.reward.is_not(None) if rewarded else ItemRow.reward.is_(None))
    return list(session.scalars(query.limit(limit)))


def newest(judge_id: int, job_id: int | None = None) -> Select[int]:
    """Return a query of the judge's newest scored item on each completion under each rubric version; of one job."""
    query = select(func.max(ItemRow.id)).where(ItemRow.judge_id == judge_id, ItemRow.question_set.is_not(None))
    if job_id is not None:
        query = query.where(ItemRow.job_id == job_id)
    return query.group_by(ItemRow.completion_id, ItemRow.rubric_id)


def newest_pages(db: Database, judge_id: int, job_id: int | None = None, *, size: int) -> Iterator[list[ItemRow]]:
    """Yield the judge's newest scored items by id, with their texts, in pages with a transaction each; see `newest`."""
    with db.read() as session:
        ids = sorted(session.scalars(newest(judge_id, job_id)))
    for chunk in batched(ids, size):
        with db.read() as session:
            query = select(ItemRow).options(*_TEXTS).where(ItemRow.id.in_(chunk)).order_by(ItemRow.id)
            yield list(session.scalars(query))


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


def unrewarded(session: Session, job_id: int) -> tuple[dict[str, int], float | None]:
    """Count the items without a reward by reason, the most common first, and find their highest coverage.

    Where no reason is stored it is the state. The coverage is in [0, 1], or None where nothing was scored.
    """
    reason = func.coalesce(ItemRow.null_reason, ItemRow.state)
    query = select(reason, func.count(), func.max(ItemRow.coverage)).group_by(reason)
    query = query.where(ItemRow.job_id == job_id, ItemRow.reward.is_(None))
    rows = session.execute(query.order_by(func.count().desc(), reason)).all()
    coverages = [coverage for *_, coverage in rows if coverage is not None]
    return {str(text): count for text, count, _ in rows}, max(coverages, default=None)


class ScoredItem(NamedTuple):
    """What an item has scored, by what; ``digest`` is the completion's."""

    completion_id: int
    digest: str
    rubric_id: int
    judge_id: int


def scored(session: Session, ids: Iterable[int]) -> dict[int, ScoredItem]:
    """Return what these items have scored, by id; unknown ones, and those of a generation, are left out."""
    columns = (ItemRow.completion_id, CompletionRow.digest, ItemRow.rubric_id, ItemRow.judge_id)
    query = select(ItemRow.id, *columns).join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
    return {row[0]: ScoredItem(*row[1:]) for row in rows_with(session, query, ItemRow.id, ids)}


class ItemReward(NamedTuple):
    """An item with its reward, without the texts; or a prompt with the rubric that was generated for it."""

    id: int
    prompt_id: int
    prompt_external_id: str | None
    completion_id: int
    completion_external_id: str | None
    policy: str
    rubric_id: int
    rubric: str
    state: str
    reward: float | None
    null_reason: str | None
    coverage: float | None
    formula: str | None
    vetoed_by: str | None


def rewards(
    session: Session,
    job_id: int,
    *,
    sort: ItemSort = "id",
    after: int = 0,
    limit: int | None = None,
    policy: str | None = None,
) -> list[ItemReward]:
    """Return the items of a job with their rewards, without the texts; by default all, by id.

    Of a generation, those fields are None that a prompt does not have.
    """
    without_reason = ItemRow.reward.is_(None) & ItemRow.state.in_((CANCELLED, FAILED))
    query = (
        select(
            ItemRow.id,
            PromptRow.id,
            PromptRow.external_id,
            ItemRow.completion_id,
            CompletionRow.content["id"].as_string(),
            func.coalesce(CompletionRow.policy, ""),
            ItemRow.rubric_id,
            RubricRow.name + "@" + cast(RubricRow.version, String),
            ItemRow.state,
            ItemRow.reward,
            func.coalesce(ItemRow.null_reason, case((without_reason, ItemRow.state))),
            ItemRow.coverage,
            ItemRow.formula,
            ItemRow.vetoed_by,
        )
        .join(CompletionRow, CompletionRow.id == ItemRow.completion_id, isouter=True)
        .join(PromptRow, PromptRow.id == func.coalesce(ItemRow.prompt_id, CompletionRow.prompt_id))
        .join(RubricRow, RubricRow.id == ItemRow.rubric_id, isouter=True)
    )
    query = _in_order(session, query, job_id, sort, after)
    if policy is not None:
        query = query.where(CompletionRow.policy == policy)
    return [ItemReward._make(row) for row in session.execute(query.limit(limit))]


def copy_rewards(session: Session, from_job: int, to_job: int) -> None:
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
        found = verdicts.for_items(session, [row.source_id for row in chunk])
        rows = [
            {
                "id": row.id,
                "question_set": row.question_set,
                **reward_columns(rubrics[row.rubric_id], found[row.source_id], least),
            }
            for row in chunk
        ]
        session.execute(update(ItemRow), rows)


def add_reply(session: Session, item_id: int, replies: Mapping[str, dict[str, Any]]) -> None:
    """Store replies by the digest of their questions. Of several to one question the first is kept."""
    for digest in sorted(replies):  # one order for all writers: two cannot block each other
        statement = insert(session, ReplyRow).values({"item_id": item_id, "digest": digest, "reply": replies[digest]})
        again = {"answered": ReplyRow.answered + 1}
        session.execute(statement.on_conflict_do_update(index_elements=["item_id", "digest"], set_=again))
