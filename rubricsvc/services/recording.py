"""Record training runs, and read them: what the trainer, the API and the commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rubricsvc.core.panel import mean_known
from rubricsvc.core.run import NewRun, RunHeartbeat, RunStep, StoredRollout, StoredRun, StoredStep
from rubricsvc.services import run_evaluations
from rubricsvc.services.run_samples import join, plain_verdicts, shortened
from rubricsvc.store import judges, runs
from rubricsvc.store.base import database_time
from rubricsvc.store.verdicts import for_items

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from rubricsvc.core.run_evaluation import RunEvaluation, StoredEvaluation
    from rubricsvc.core.states import ApprovalPolicy
    from rubricsvc.store.session import Database
    from rubricsvc.store.tables import RolloutRow, RunMetricsRow, RunRow


class DatabaseRuns:
    """The runs of a database, with the methods of ``Client.runs`` by which a trainer records one.

    ``policy`` decides whether new rubrics are stored as drafts.
    """

    def __init__(self, db: Database, policy: ApprovalPolicy = "generated") -> None:
        self._db = db
        self._policy = policy

    def create(self, new: NewRun) -> StoredRun:
        """Begin or continue a run."""
        with self._db.write() as session:
            return summaries(session, [begin(session, new)])[0]

    def record(self, run_id: int, step: RunStep) -> StoredRun:
        """Record a step."""
        with self._db.write() as session:
            return summaries(session, [record(session, run_id, step, self._policy)])[0]

    def record_evaluation(self, run_id: int, evaluation: RunEvaluation) -> StoredRun:
        """Record an evaluation."""
        with self._db.write() as session:
            return summaries(session, [run_evaluations.record(session, run_id, evaluation, self._policy)])[0]

    def heartbeat(self, run_id: int, heartbeat: RunHeartbeat) -> StoredRun:
        """Report that the run goes on, or its new state."""
        with self._db.write() as session:
            return summaries(session, [report(session, run_id, heartbeat)])[0]

    def page(self, *, key: str) -> list[StoredRun]:
        """Return the run of this key, if there is one."""
        with self._db.read() as session:
            return summaries(session, runs.page(session, key=key))

    def steps(self, run_id: int, *, after: int, limit: int) -> list[StoredStep]:
        """Return the first steps on record after step ``after``."""
        with self._db.read() as session:
            return [stored_step(row) for row in runs.steps(session, run_id, after=after, limit=limit)]

    def evaluations(self, run_id: int, *, limit: int) -> list[StoredEvaluation]:
        """Return the first evaluations on record."""
        with self._db.read() as session:
            return run_evaluations.page(session, run_id, limit=limit)


def begin(session: Session, new: NewRun) -> RunRow:
    """Add a run, or continue that of the same key; steps after ``new.done`` are deleted."""
    values: dict[str, Any] = new.model_dump(mode="json", exclude={"judge_digest"})
    judge = judges.find(session, new.judge) if new.judge is not None else None
    is_same = judge is not None and new.judge_digest in (None, judge.digest)
    return runs.begin(session, **values, judge_id=judge.id if judge is not None and is_same else None)


def record(session: Session, run_id: int, step: RunStep, policy: ApprovalPolicy = "generated") -> RunRow:
    """Store a step in place of what is on record of it, with the prompts, rubrics and completions that are new.

    Raises:
        NotFoundError: There is no such run, or no item of a rollout.
        InvalidError: An item of a rollout has scored another completion.
    """
    row = runs.get(session, run_id, lock=True)
    of_rollouts = [(one, group) for group in step.groups for one in group.rollouts]
    joined = join(
        session, row, [(group.prompt, group.rubric, one.completion, one.item_id) for one, group in of_rollouts], policy
    )
    rows = [
        {
            **one.model_dump(include={"item_id", "reward", "advantage", "tokens", "truncated", "logprob_sum"}),
            "null_reason": shortened(one.null_reason),
            "prompt_id": place.prompt_id,
            "completion_id": place.completion_id,
            "rubric_id": place.rubric_id,
            "judge_id": row.judge_id if place.judge_id is None else place.judge_id,
            "verdicts": [] if one.item_id is not None else plain_verdicts(one.verdicts),
        }
        for (one, _), place in zip(of_rollouts, joined, strict=True)
    ]
    runs.write_step(session, row.id, step.step, {**step.metrics, "step": step.step}, rows)
    runs.report(session, row)
    return row


def report(session: Session, run_id: int, heartbeat: RunHeartbeat) -> RunRow:
    """Note that a trainer reports, and the new state of its run.

    Raises:
        NotFoundError: There is no such run.
    """
    row = runs.get(session, run_id)
    runs.report(session, row, heartbeat.state, heartbeat.reason)
    return row


_COLUMNS = (
    "id", "created_at", "finished_at", "name", "reason", "stop_requested", "host", "folder", "judge", "judge_id",
    "steps_total",
)  # fmt: skip


def summaries(session: Session, rows: Sequence[RunRow]) -> list[StoredRun]:
    """Return how far each of these runs is."""
    now, run_ids = database_time(session), [row.id for row in rows]
    counts, newest = runs.step_counts(session, run_ids), runs.newest_metrics(session, run_ids)
    return [
        StoredRun(
            **{name: getattr(row, name) for name in _COLUMNS},
            status=runs.status(row, now),
            seen_seconds=max(0.0, now - row.seen_at),
            steps=counts.get(row.id, 0),
            metrics=newest.get(row.id),
        )
        for row in rows
    ]


def details(session: Session, run_id: int | str) -> StoredRun:
    """Return a run with its counts of rollouts, its first and last rewards and its configuration.

    Raises:
        NotFoundError: There is no such run.
    """
    row = runs.get(session, run_id)
    (summary,) = summaries(session, [row])
    rewards = runs.rewards(session, row.id)
    rollouts, unscored = runs.rollout_counts(session, row.id)
    first, last = first_and_last(rewards)
    more = {"rollouts": rollouts, "unscored": unscored, "reward_first": first, "reward_last": last}
    return summary.model_copy(update={**more, "config": row.config})


def first_and_last(rewards: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return the mean reward of the first and of the last tenth of the steps."""
    tenth = max(1, len(rewards) // 10)
    return mean_known(rewards[:tenth]), mean_known(rewards[-tenth:])


def stored_step(row: RunMetricsRow) -> StoredStep:
    """Return a step on record as a value."""
    return StoredStep(step=row.step, created_at=row.created_at, metrics=row.metrics)


def rollouts(session: Session, run_id: int, *, verdicts: bool = True, **paging: Any) -> list[StoredRollout]:
    """Return a page of rollouts as values; ``paging`` as of `runs.rollouts`.

    Raises:
        NotFoundError: There is no such run.
    """
    return rollout_values(session, runs.rollouts(session, runs.get(session, run_id).id, **paging), verdicts=verdicts)


def rollout_values(session: Session, rows: Sequence[RolloutRow], *, verdicts: bool = True) -> list[StoredRollout]:
    """Return rollouts as values."""
    item_ids = [row.item_id for row in rows if verdicts and row.item_id is not None]
    by_item = for_items(session, item_ids)
    names = StoredRollout.model_fields.keys() - {"rubric", "verdicts"}
    return [
        StoredRollout.model_validate(
            {name: getattr(row, name) for name in names}
            | {"rubric": row.rubric.ref}
            | {"verdicts": (by_item.get(row.item_id, ()) if row.item_id else row.verdicts) if verdicts else ()}
        )
        for row in rows
    ]
