"""Tests of rubric versions by their own examples. The newest one that was measured counts."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from rubricsvc.core.rubric_test import RubricTest
from rubricsvc.store.ids import page_of
from rubricsvc.store.tables import RubricRow, RubricTestRow


def add(session: Session, rubric_id: int, test: RubricTest, *, by: str) -> RubricTestRow:
    """Store the results of a test of a version."""
    row = RubricTestRow(rubric_id=rubric_id, by=by, outcome=test.outcome, content=test.model_dump(mode="json"))
    session.add(row)
    session.flush()
    return row


def newest_measured(session: Session, rubric_id: int) -> RubricTestRow | None:
    """Return the newest test of a version that passed or failed."""
    measured = RubricTestRow.rubric_id == rubric_id, RubricTestRow.outcome != "unmeasured"
    return session.scalars(select(RubricTestRow).where(*measured).order_by(RubricTestRow.id.desc()).limit(1)).first()


def failing(session: Session, digest: str) -> RubricRow | None:
    """Return the version with this content whose test is the newest measured one of all, if that failed."""
    query = select(RubricRow, RubricTestRow.outcome).join(RubricTestRow, RubricTestRow.rubric_id == RubricRow.id)
    measured = RubricRow.digest == digest, RubricTestRow.outcome != "unmeasured"
    newest = session.execute(query.where(*measured).order_by(RubricTestRow.id.desc()).limit(1)).first()
    return newest[0] if newest is not None and newest[1] == "failed" else None


def page(session: Session, rubric_id: int, *, after: int = 0, limit: int = 50) -> list[RubricTestRow]:
    """Return up to ``limit`` tests of a version with ids above ``after``, oldest first."""
    return page_of(session, RubricTestRow, after, limit, rubric_id=rubric_id)
