"""Items of a job: their rewards, their order by reward, and why some have none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVarTuple

from sqlalchemy import Select, String, case, cast, func, select, tuple_, update
from sqlalchemy.orm import Session, aliased, joinedload

from rubricsvc.core.reward import reward_or_null
from rubricsvc.core.rubric import Rubric
from rubricsvc.core.states import ItemSort
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import NotFoundError
from rubricsvc.store import verdicts
from rubricsvc.store.base import batched, insert
from rubricsvc.store.tables import (
    CANCELLED,
    DONE,
    FAILED,
    CompletionRow,
    ItemRow,
    JobRow,
    PromptRow,
    QuestionRow,
    ReplyRow,
    RubricRow,
)
from rubricsvc.store.verdicts import Name

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


REASON_CHARS = 300
"""Characters kept of a ``null_reason``."""


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


def recompute(session: Session, replaced: Sequence[Name]) -> set[int]:
    """Recompute the rewards of failed items whose failed verdicts were replaced; return their jobs.

    An item's reward is always that of the verdicts that are read for it. So this waits for a transaction that replaces
    another verdict of the same item.
    """
    repaired: set[int] = set()
    for chunk in batched(replaced):
        sharing = (
            select(ItemRow.id)
            .join(QuestionRow, QuestionRow.question_set == ItemRow.question_set)
            .where(ItemRow.state == FAILED, tuple_(ItemRow.completion_id, QuestionRow.fingerprint).in_(chunk))
        )
        locked = (
            select(ItemRow.id, ItemRow.job_id, ItemRow.rubric_id, JobRow.min_coverage)
            .join(JobRow, JobRow.id == ItemRow.job_id)
            .where(ItemRow.id.in_(sharing), ItemRow.state == FAILED)
            .order_by(ItemRow.id)
            .with_for_update(of=ItemRow)
        )
        items = session.execute(locked).all()
        rubrics = _rubrics(session, (item.rubric_id for item in items))
        current = verdicts.for_items(session, [item.id for item in items])
        rows = [
            {"id": item.id, **reward_columns(rubrics[item.rubric_id], current[item.id], item.min_coverage)}
            for item in items
        ]
        if rows:
            session.execute(update(ItemRow), rows)
            repaired |= {item.job_id for item in items}
    return repaired


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
        rubrics = _rubrics(session, (row.rubric_id for row in chunk))
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


def _rubrics(session: Session, ids: Iterable[int]) -> Mapping[int, Rubric]:
    return {id_: session.get_one(RubricRow, id_).value for id_ in set(ids)}


def known_replies(session: Session, item_id: int) -> dict[str, dict[str, Any]]:
    """Return the replies that an item has, by the digest of the question."""
    rows = session.execute(select(ReplyRow.digest, ReplyRow.reply).where(ReplyRow.item_id == item_id))
    return {row.digest: row.reply for row in rows}


def add_reply(session: Session, item_id: int, replies: Mapping[str, dict[str, Any]]) -> None:
    """Store replies by the digest of their questions. Of several to one question the first is kept."""
    for digest in sorted(replies):  # one order for all writers: two cannot block each other
        statement = insert(session, ReplyRow).values({"item_id": item_id, "digest": digest, "reply": replies[digest]})
        again = {"answered": ReplyRow.answered + 1}
        session.execute(statement.on_conflict_do_update(index_elements=["item_id", "digest"], set_=again))


def asked_again(session: Session, item_ids: Select[int]) -> int:
    """Return the number of replies to questions of these items that had one already."""
    return int(session.scalar(select(func.sum(ReplyRow.answered - 1)).where(ReplyRow.item_id.in_(item_ids))) or 0)
