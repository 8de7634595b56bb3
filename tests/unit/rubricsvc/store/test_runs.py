"""Queries of training runs on both databases."""

from __future__ import annotations

from rubricsvc.services.runs import Runs
from rubricsvc.store import runs
from rubricsvc.store.session import Database
from tests.recorded_run import new_run, run_step


def test_best_rollouts_are_those_with_the_highest_rewards_newest_first(each_db: Database) -> None:
    """Rollouts without a reward, and those of other runs, do not count."""
    store = Runs(each_db)
    for key in ("first", "second"):
        store.create(new_run(key))
    for step, reward in enumerate((0.2, 0.9, None, 0.9), 1):
        store.record(1, run_step(step, reward=reward))
    store.record(2, run_step(1, reward=1.0))
    with each_db.read() as session:
        best = runs.rollouts(session, 1, limit=5, best=True)
        assert [(row.step, row.reward) for row in best] == [(4, 0.9), (4, 0.9), (2, 0.9), (2, 0.9), (1, 0.2)]
        assert best[0].id > best[1].id and best[0].rubric.ref
