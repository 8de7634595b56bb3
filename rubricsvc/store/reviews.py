"""Reviews of rubric versions: their states, and the events that changed them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.core.states import RubricState
from rubricsvc.store import rubrics
from rubricsvc.store.ids import page_of
from rubricsvc.store.tables import RubricEventRow, RubricRow


def record(session: Session, row: RubricRow, to: RubricState, *, by: str, comment: str | None) -> None:
    """Set the state of a version, and add the event; with the same state it is a comment."""
    session.add(RubricEventRow(rubric_id=row.id, from_state=row.state, to_state=to, by=by, comment=comment))
    row.state = to
    session.info.pop(rubrics.DRAFTS, None)
    session.flush()


def lock(session: Session, row: RubricRow) -> None:
    """Read the row again and lock it, so that of two reviewers the second one sees what the first one did."""
    session.refresh(row, with_for_update=True)


def last(session: Session, rubric_id: int) -> RubricEventRow | None:
    """Return the newest event of a version."""
    query = select(RubricEventRow).where(RubricEventRow.rubric_id == rubric_id)
    return session.scalars(query.order_by(RubricEventRow.id.desc()).limit(1)).first()


def page(session: Session, rubric_ids: Sequence[int], *, after: int = 0, limit: int = 50) -> list[RubricEventRow]:
    """Return up to ``limit`` events of these versions with ids above ``after``, ascending."""
    return page_of(session, RubricEventRow, after, limit, RubricEventRow.rubric_id.in_(rubric_ids))
