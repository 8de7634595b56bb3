"""Items of a job: their rewards, their order by reward, and why some have none."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeVarTuple

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.states import ItemSort
from rubricsvc.errors import NotFoundError
from rubricsvc.store.tables import CompletionRow, ItemRow, RubricRow
from rubricsvc.store.upsert import batched

Ts = TypeVarTuple("Ts")


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

    Raises:
        NotFoundError: The job has no item ``after``; reported if the order is not that of ids.
    """
    query = _in_order(session, _with_texts(), job_id, sort, after)
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


def newest_ids(session: Session, judge_id: int, job_id: int | None = None) -> list[int]:
    """Return the ids of the judge's newest scored items, ascending; see `newest`."""
    return sorted(session.scalars(newest(judge_id, job_id)))


def by_ids(session: Session, ids: Collection[int]) -> list[ItemRow]:
    """Return these items by id, with their completion, prompt and rubric."""
    return list(session.scalars(_with_texts().where(ItemRow.id.in_(ids)).order_by(ItemRow.id)))


def _with_texts() -> Select[ItemRow]:
    completion = joinedload(ItemRow.completion)
    return select(ItemRow).options(
        completion.selectinload(CompletionRow.prompt), joinedload(ItemRow.rubric), joinedload(ItemRow.prompt)
    )


def _in_order(session: Session, query: Select[*Ts], job_id: int, sort: ItemSort, after: int) -> Select[*Ts]:
    """Restrict a query of items to those of the job that follow the item ``after`` (0: all) in this order.

    Items without a reward are last, whether rewards rise or fall; ties are in the order of ids.

    Raises:
        NotFoundError: The order is by reward, and the job has no item ``after``.
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


def null_reasons(session: Session, job_id: int) -> dict[str, int]:
    """Count the items without a reward by reason, or by state where none is stored; the most common first."""
    reason = func.coalesce(ItemRow.null_reason, ItemRow.state)
    query = select(reason, func.count()).where(ItemRow.job_id == job_id, ItemRow.reward.is_(None)).group_by(reason)
    return {str(text): count for text, count in session.execute(query.order_by(func.count().desc(), reason))}


def null_coverage(session: Session, job_id: int) -> float | None:
    """Return the highest coverage of an item without a reward, if there is one."""
    query = select(func.max(ItemRow.coverage)).where(ItemRow.job_id == job_id, ItemRow.reward.is_(None))
    return session.scalar(query)


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
    return {
        row[0]: ScoredItem(*row[1:])
        for chunk in batched(ids)
        for row in session.execute(query.where(ItemRow.id.in_(chunk)))
    }


class ItemReward(NamedTuple):
    """The reward of one item, and what it was given for. ``rubric`` is the name, without the ``version``."""

    item_id: int
    completion_id: int
    prompt_id: int
    policy: str
    rubric_id: int
    rubric: str
    version: int
    state: str
    reward: float | None
    coverage: float | None
    formula: str | None
    vetoed_by: str | None
    null_reason: str | None


def rewards(session: Session, job_id: int) -> list[ItemReward]:
    """Return the rewards of all items of a job, by id, without the texts."""
    of = (CompletionRow.prompt_id, CompletionRow.policy, ItemRow.rubric_id, RubricRow.name, RubricRow.version)
    reward = (ItemRow.reward, ItemRow.coverage, ItemRow.formula, ItemRow.vetoed_by, ItemRow.null_reason)
    query = (
        select(ItemRow.id, ItemRow.completion_id, *of, ItemRow.state, *reward)
        .join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
        .join(RubricRow, RubricRow.id == ItemRow.rubric_id)
        .where(ItemRow.job_id == job_id)
        .order_by(ItemRow.id)
    )
    return [ItemReward._make(row) for row in session.execute(query)]
