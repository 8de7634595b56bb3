"""Replies to the questions of generations: stored as they arrive, so that a worker that takes over asks none again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from rubricsvc.store.tables import ItemRow, ReplyRow
from rubricsvc.store.upsert import insert


def known(session: Session, item_id: int) -> dict[str, dict[str, Any]]:
    """Return the replies that an item has, by the digest of the question."""
    query = select(ReplyRow.digest, ReplyRow.reply).where(ReplyRow.item_id == item_id)
    return dict(session.execute(query).all())


def add(session: Session, item_id: int, replies: Mapping[str, dict[str, Any]]) -> None:
    """Store replies by the digest of their questions. Of several to one question the first is kept."""
    for digest in sorted(replies):  # one order for all writers: two cannot block each other
        statement = insert(session, ReplyRow).values(item_id=item_id, digest=digest, reply=replies[digest])
        again = {"answered": ReplyRow.answered + 1}
        session.execute(statement.on_conflict_do_update(index_elements=["item_id", "digest"], set_=again))


def asked_again(session: Session, job_id: int) -> int:
    """Return the number of replies to questions of a job that had one already."""
    query = select(func.sum(ReplyRow.answered - 1)).join(ItemRow, ItemRow.id == ReplyRow.item_id)
    return int(session.scalar(query.where(ItemRow.job_id == job_id)) or 0)
