"""Evaluations of training runs: of the policy after steps, and of baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.run_evaluation import STEP
from rubricsvc.store import ids
from rubricsvc.store.tables import EvaluationCompletionRow, EvaluationRewardRow, EvaluationRow
from rubricsvc.store.upsert import batched, insert_rows


def write(
    session: Session,
    run_id: int,
    *,
    name: str,
    step: int,
    line: dict[str, Any],
    completions: Sequence[dict[str, Any]],
    rewards: Iterable[dict[str, Any]],
) -> EvaluationRow:
    """Store an evaluation in place of the one of its step, or of its baseline.

    A completion is all columns but its id, evaluation and place; a reward has its ``place``.
    """
    same_step = [EvaluationRow.step == step] if name == STEP else []
    remove(session, run_id, EvaluationRow.name == name, *same_step)
    row = EvaluationRow(run_id=run_id, name=name, step=step, line=line)
    session.add(row)
    session.flush()
    placed = ({"evaluation_id": row.id, "place": place, **one} for place, one in enumerate(completions))
    _insert(session, EvaluationCompletionRow, placed)
    _insert(session, EvaluationRewardRow, ({"evaluation_id": row.id, **one} for one in rewards))
    return row


def _insert(session: Session, table: Any, rows: Iterable[dict[str, Any]]) -> None:
    for chunk in batched(rows):
        statement, parameters = insert_rows(session, table, chunk)
        session.connection().execute(statement, parameters)


def remove(session: Session, run_id: int, *where: ColumnElement[bool]) -> None:
    """Delete evaluations of a run, with their completions and rewards; the rows of ``completions`` stay."""
    found = list(session.scalars(select(EvaluationRow.id).where(EvaluationRow.run_id == run_id, *where)))
    for chunk in batched(found):
        for table in (EvaluationRewardRow, EvaluationCompletionRow):
            session.execute(delete(table).where(table.evaluation_id.in_(chunk)))
        session.execute(delete(EvaluationRow).where(EvaluationRow.id.in_(chunk)))


def remove_after(session: Session, run_id: int, step: int) -> None:
    """Delete the evaluations of a run's policy after later steps than ``step``; baselines stay."""
    remove(session, run_id, EvaluationRow.name == STEP, EvaluationRow.step > step)


def page(
    session: Session, run_id: int, *, after: int = 0, limit: int = 50, name: str | None = None
) -> list[EvaluationRow]:
    """Return up to ``limit`` evaluations of a run with ids above ``after``, ascending; of one name."""
    return ids.page_of(session, EvaluationRow, after, limit, run_id=run_id, name=name)


def completions(
    session: Session, run_id: int, *, after: int = 0, limit: int = 100, evaluation_id: int | None = None
) -> list[EvaluationCompletionRow]:
    """Return up to ``limit`` completions of a run's evaluations with ids above ``after``, ascending; of one of them."""
    of_run = select(EvaluationRow.id).where(EvaluationRow.run_id == run_id)
    options = [joinedload(EvaluationCompletionRow.rubric)]
    where = EvaluationCompletionRow.evaluation_id.in_(of_run)
    return ids.page_of(
        session, EvaluationCompletionRow, after, limit, where, options=options, evaluation_id=evaluation_id
    )


def completions_by_ids(session: Session, row_ids: Iterable[int]) -> list[EvaluationCompletionRow]:
    """Return these completions, ascending by id."""
    query = select(EvaluationCompletionRow).order_by(EvaluationCompletionRow.id)
    return [
        row
        for chunk in batched(sorted(row_ids))
        for row in session.scalars(query.where(EvaluationCompletionRow.id.in_(chunk)))
    ]


Place = tuple[int, int]
"""The id of an evaluation, and a place in it."""


def rewards(session: Session, rows: Sequence[EvaluationCompletionRow]) -> dict[Place, list[EvaluationRewardRow]]:
    """Return the rewards of completions, in the order in which they were recorded; ``rows`` are ascending by id."""
    found: dict[Place, list[EvaluationRewardRow]] = {(row.evaluation_id, row.place): [] for row in rows}
    for evaluation_id in dict.fromkeys(row.evaluation_id for row in rows):
        places = [row.place for row in rows if row.evaluation_id == evaluation_id]
        query = select(EvaluationRewardRow).where(
            EvaluationRewardRow.evaluation_id == evaluation_id,
            EvaluationRewardRow.place.between(min(places), max(places)),
        )
        for row in session.scalars(query.order_by(EvaluationRewardRow.id)):
            found.get((evaluation_id, row.place), []).append(row)
    return found
