"""Replies to the questions of a generation's item, or of the proposer of an evolution.

They are stored as they arrive, so that a worker that takes over asks none again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from rubricsvc.store.tables import ProposalReplyRow, ReplyRow
from rubricsvc.store.upsert import insert

OF_ITEM, OF_EVOLUTION = ReplyRow.item_id, ProposalReplyRow.evolution_id
"""The columns of a reply's owner."""

Owner = InstrumentedAttribute[int]


def known(session: Session, owner: Owner, owner_id: int) -> dict[str, dict[str, Any]]:
    """Return the replies that an owner has, by the digest of the question."""
    table: Any = owner.class_
    return dict(session.execute(select(table.digest, table.reply).where(owner == owner_id)).all())


def add(session: Session, owner: Owner, owner_id: int, replies: Mapping[str, dict[str, Any]]) -> None:
    """Store replies by the digest of their questions. Of several to one question the first is kept."""
    table: Any = owner.class_
    for digest in sorted(replies):  # one order for all writers: two cannot block each other
        statement = insert(session, table).values({owner.key: owner_id, "digest": digest, "reply": replies[digest]})
        again = {"answered": table.answered + 1}
        session.execute(statement.on_conflict_do_update(index_elements=[owner.key, "digest"], set_=again))


def asked_again(session: Session, owner: Owner, owner_ids: Sequence[int] | Select[int]) -> int:
    """Return the number of replies to questions of these owners that had one already."""
    answered: Any = owner.class_.answered
    return int(session.scalar(select(func.sum(answered - 1)).where(owner.in_(owner_ids))) or 0)
