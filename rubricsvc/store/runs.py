"""Training runs: their states, the metrics of their steps, and their rollouts.

A trainer reports at least every `REPORT_SECONDS`; of one that is silent for `LOST_SECONDS` the run is lost, until it
reports again. Times are by the database's clock.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session, joinedload

from rubricsvc.core.states import RunState, RunStatus
from rubricsvc.schemas.runs import STEP
from rubricsvc.store.leases import database_time
from rubricsvc.store.session import add_new, existing, insert, page_of, rows_with
from rubricsvc.store.tables import (
    EvaluationCompletionRow,
    EvaluationRewardRow,
    EvaluationRow,
    RolloutRow,
    RunMetricsRow,
    RunRow,
)

REPORT_SECONDS = 10.0
LOST_SECONDS = 60.0
LIVE: tuple[RunState, ...] = ("running", "paused")  # the states in which a trainer reports


def get(session: Session, run_id: int | str, *, lock: bool = False) -> RunRow:
    """Return the row; with ``lock`` what others write of the run waits for the commit."""
    return existing(session, RunRow, "run", run_id, lock=lock)


def status(row: RunRow, now: float) -> RunStatus:
    """Return the state of a run at a time by `database_time`."""
    return "lost" if row.state in LIVE and now - row.seen_at > LOST_SECONDS else row.state


def report(session: Session, row: RunRow, state: RunState | None = None, reason: str | None = None) -> None:
    """Note that the trainer of a run reports, and its new ``state``, if it has one."""
    row.seen_at = database_time(session)
    if state is not None:
        row.state, row.reason = state, reason
        row.finished_at = None if state in LIVE else datetime.now(UTC)
    session.flush()


def remove_steps(session: Session, row: RunRow, *, after: int) -> None:
    """Delete the steps of a run ``after`` a step, with their evaluations; those of its baselines stay."""
    for table in (RolloutRow, RunMetricsRow):
        session.execute(delete(table).where(table.run_id == row.id, table.step > after))
    remove_evaluations(session, row.id, EvaluationRow.name == STEP, EvaluationRow.step > after)
    session.flush()


def write_step(
    session: Session, run_id: int, step: int, metrics: dict[str, Any], rollouts: Sequence[dict[str, Any]]
) -> None:
    """Store a step in place of what is on record of it. A rollout is all columns but its id, run, step and place."""
    session.execute(delete(RolloutRow).where(RolloutRow.run_id == run_id, RolloutRow.step == step))
    reward = metrics.get("reward")
    values: dict[str, Any] = {"metrics": metrics, "created_at": datetime.now(UTC)}
    values["reward"] = reward if isinstance(reward, float) else None
    statement = insert(session, RunMetricsRow).values(run_id=run_id, step=step, **values)
    session.execute(statement.on_conflict_do_update(index_elements=["run_id", "step"], set_=values))
    rows = ({"run_id": run_id, "step": step, "place": place, **one} for place, one in enumerate(rollouts))
    add_new(session, RolloutRow, rows)


def newest_steps(session: Session, run_ids: Iterable[int]) -> dict[int, tuple[int, dict[str, Any]]]:
    """Return the number of steps on record of each run, and the metrics of the newest; one without any is left out."""
    known = select(RunMetricsRow.run_id, func.count().label("steps"), func.max(RunMetricsRow.step).label("step"))
    newest = known.where(RunMetricsRow.run_id.in_(list(run_ids))).group_by(RunMetricsRow.run_id).subquery()
    same = (RunMetricsRow.run_id == newest.c.run_id) & (RunMetricsRow.step == newest.c.step)
    query = select(RunMetricsRow.run_id, newest.c.steps, RunMetricsRow.metrics).join(newest, same)
    return {run_id: (steps, metrics) for run_id, steps, metrics in session.execute(query)}


def rollout_counts(session: Session, run_id: int) -> tuple[int, int]:
    """Return the number of rollouts of a run, and of those without a reward."""
    query = select(func.count(), func.count(RolloutRow.reward)).where(RolloutRow.run_id == run_id)
    total, scored = session.execute(query).one()
    return total, total - scored


def steps(session: Session, run_id: int, *, after: int = 0, limit: int = 50) -> list[RunMetricsRow]:
    """Return up to ``limit`` steps after step ``after``, ascending."""
    query = select(RunMetricsRow).where(RunMetricsRow.run_id == run_id, RunMetricsRow.step > after)
    return list(session.scalars(query.order_by(RunMetricsRow.step).limit(limit)))


def rollouts(
    session: Session, run_id: int, *, after: int = 0, limit: int = 100, step: int | None = None, best: bool = False
) -> list[RolloutRow]:
    """Return up to ``limit`` rollouts with ids above ``after``, ascending, with their rubrics; of one step.

    With ``best``, those with the highest rewards of the run instead, the newest first of equal ones.
    """
    options = [joinedload(RolloutRow.rubric)]
    if not best:
        return page_of(session, RolloutRow, after, limit, options=options, run_id=run_id, step=step)
    query = select(RolloutRow).where(RolloutRow.run_id == run_id, RolloutRow.reward.is_not(None)).options(*options)
    return list(session.scalars(query.order_by(RolloutRow.reward.desc(), RolloutRow.id.desc()).limit(limit)))


def write_evaluation(
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
    remove_evaluations(session, run_id, EvaluationRow.name == name, *same_step)
    row = EvaluationRow(run_id=run_id, name=name, step=step, line=line)
    session.add(row)
    session.flush()
    placed = ({"evaluation_id": row.id, "place": place, **one} for place, one in enumerate(completions))
    add_new(session, EvaluationCompletionRow, placed)
    add_new(session, EvaluationRewardRow, ({"evaluation_id": row.id, **one} for one in rewards))
    return row


def remove_evaluations(session: Session, run_id: int, *where: ColumnElement[bool]) -> None:
    """Delete evaluations of a run, with their completions and rewards; the rows of ``completions`` stay."""
    found = select(EvaluationRow.id).where(EvaluationRow.run_id == run_id, *where)
    for column in (EvaluationRewardRow.evaluation_id, EvaluationCompletionRow.evaluation_id, EvaluationRow.id):
        statement = delete(column.class_).where(column.in_(found))
        session.execute(statement, execution_options={"synchronize_session": False})


def evaluation_completions(
    session: Session,
    run_id: int,
    *,
    after: int = 0,
    limit: int = 100,
    evaluation_id: int | None = None,
    ids: Iterable[int] | None = None,
) -> list[EvaluationCompletionRow]:
    """Return up to ``limit`` completions of a run's evaluations, ascending by id, above ``after``: of one, or these."""
    of_run = select(EvaluationRow.id).where(EvaluationRow.run_id == run_id)
    where = [EvaluationCompletionRow.evaluation_id.in_(of_run)]
    if ids is not None:
        where.append(EvaluationCompletionRow.id.in_(list(ids)))
    options = [joinedload(EvaluationCompletionRow.rubric)]
    return page_of(session, EvaluationCompletionRow, after, limit, *where, options=options, evaluation_id=evaluation_id)


Place = tuple[int, int]  # the id of an evaluation, and a place in it


def evaluation_rewards(
    session: Session, rows: Sequence[EvaluationCompletionRow]
) -> dict[Place, list[EvaluationRewardRow]]:
    """Return the rewards of completions, in the order in which they were recorded."""
    found: dict[Place, list[EvaluationRewardRow]] = {(row.evaluation_id, row.place): [] for row in rows}
    reward, completion = EvaluationRewardRow, EvaluationCompletionRow
    same = (reward.evaluation_id == completion.evaluation_id) & (reward.place == completion.place)
    query = select(reward).join(completion, same).order_by(reward.id)
    for (row,) in rows_with(session, query, completion.id, [row.id for row in rows]):
        found[row.evaluation_id, row.place].append(row)
    return found
