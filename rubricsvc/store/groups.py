"""Groups of a job: its completions of one prompt under one rubric."""

from __future__ import annotations

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.orm import Session, joinedload

from rubricsvc.store.tables import CompletionRow, ItemRow

Group = tuple[int, int]
"""(prompt id, rubric id)."""


def page(session: Session, job_id: int, *, after: Group = (0, 0), limit: int = 100) -> list[Group]:
    """Return up to ``limit`` groups above ``after``, ascending, of those with two rewards or more."""
    query = _groups(job_id).where(tuple_(*_GROUP) > after).limit(limit)
    return [(prompt_id, rubric_id) for prompt_id, rubric_id in session.execute(query)]


_GROUP = (CompletionRow.prompt_id, ItemRow.rubric_id)


def _groups(job_id: int) -> Select[int, int]:
    return (
        select(*_GROUP)
        .join(ItemRow, ItemRow.completion_id == CompletionRow.id)
        .where(ItemRow.job_id == job_id, ItemRow.reward.is_not(None))
        .group_by(*_GROUP)
        .having(func.count() > 1)
        .order_by(*_GROUP)
    )


def members(session: Session, job_id: int, group: Group) -> list[ItemRow]:
    """Return the items of a group that have a reward, by id, with their completion and rubric."""
    prompt_id, rubric_id = group
    query = (
        select(ItemRow)
        .join(CompletionRow, CompletionRow.id == ItemRow.completion_id)
        .where(
            ItemRow.job_id == job_id,
            ItemRow.rubric_id == rubric_id,
            CompletionRow.prompt_id == prompt_id,
            ItemRow.reward.is_not(None),
        )
        .options(joinedload(ItemRow.completion), joinedload(ItemRow.rubric))
        .order_by(ItemRow.id)
    )
    return list(session.scalars(query))
