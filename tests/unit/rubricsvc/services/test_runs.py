"""Evaluations of training runs recorded in a database, and read again."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from rubricsvc.core.prompt import Completion, Message
from rubricsvc.core.verdict import Verdict
from rubricsvc.schemas.runs import RolloutGroup, RunStep, StoredEvaluation, StoredEvaluationCompletion
from rubricsvc.services.runs import EXAMPLES, Runs
from rubricsvc.store import completions
from rubricsvc.store.session import Database
from rubricsvc.store.tables import CompletionRow, EvaluationCompletionRow, EvaluationRewardRow, EvaluationRow
from tests.recorded_run import PROMPTS, RUBRIC, evaluation_line, new_run, rollout, run_evaluation, run_step
from trainer.monitors.measures import SIGNS


def counts(db: Database) -> tuple[int, ...]:
    with db.read() as session:
        tables = (EvaluationRow, EvaluationCompletionRow, EvaluationRewardRow, CompletionRow)
        return tuple(session.scalar(select(func.count()).select_from(table)) or 0 for table in tables)


def stored(db: Database, run_id: int = 1) -> list[StoredEvaluation]:
    return list(Runs(db).evaluations(run_id))


def all_completions(db: Database, evaluation_id: int | None = None) -> list[StoredEvaluationCompletion]:
    return list(Runs(db).evaluation_completions(1, evaluation_id=evaluation_id))


def test_record_stores_an_evaluation_with_its_completions_and_rewards(each_db: Database) -> None:
    store = Runs(each_db)
    store.create(new_run())
    store.record(1, run_step(1))
    for evaluation in (run_evaluation(0), run_evaluation(1)):
        assert store.record_evaluation(1, evaluation).steps == 1
    assert counts(each_db) == (2, 8, 16, 12)
    assert [(one.name, one.step, one.line) for one in stored(each_db)] == [
        ("step", 0, evaluation_line(0)),
        ("step", 1, evaluation_line(1)),
    ]
    found = all_completions(each_db, stored(each_db)[1].id)
    assert [(one.place, one.greedy, one.truncated, one.rubric_id) for one in found] == [
        (0, False, False, 1),
        (1, True, True, 1),
        (2, False, False, 1),
        (3, True, True, 1),
    ]
    rewards = [[(each.score, each.reward, each.null_reason) for each in one.rewards] for one in found]
    assert rewards[:2] == [
        [("reward", 0.75, None), ("gold", 0.25, None)],
        [("reward", None, "timeout"), ("gold", 0.25, None)],
    ]
    assert found[2].rewards[0].verdicts == (Verdict.scored("right", 0.75),)
    with each_db.read() as session:
        row = completions.get(session, found[3].completion_id)
        assert (row.value.text, row.value.step, row.prompt.value) == ("eval 1.1 greedy", 1, PROMPTS[1])
        assert row.value.sampling == {"temperature": 0.0}
        rollouts = list(Runs(each_db).rollouts(1))
    assert {one.rubric for one in (*rollouts, *found)} == {f"rubric-{RUBRIC.digest[:12]}@1"}


def test_record_replaces_the_evaluation_of_a_step_and_of_a_baseline(each_db: Database) -> None:
    store = Runs(each_db)
    store.create(new_run())
    for evaluation in (
        run_evaluation(0),
        run_evaluation(4),
        run_evaluation(0, word="again"),
        run_evaluation(4, "best_of_n_supervised"),
        run_evaluation(8, "best_of_n_supervised"),  # of a run that was extended
    ):
        store.record_evaluation(1, evaluation)
    assert sorted((one.name, one.step) for one in stored(each_db)) == [
        ("best_of_n_supervised", 8),
        ("step", 0),
        ("step", 4),
    ]
    assert counts(each_db)[:3] == (3, 12, 24)
    with each_db.read() as session:
        (first,) = (one for one in stored(each_db) if one.step == 0)
        row = completions.get(session, all_completions(each_db, first.id)[0].completion_id)
    assert row.value.text == "again 0.0"


def episode(text: str, **tools: int) -> Any:
    completion = Completion(
        text=text,
        messages=(Message(role="assistant", content=text),),
        policy="tiny",
        step=0,
        sampling={"tools": {name.replace("_", "/"): count for name, count in tools.items()}},
    )
    return rollout(text).model_copy(update={"completion": completion})


def test_with_alarms_shows_rollouts_of_the_step_with_the_sign(db: Database) -> None:
    store = Runs(db, signs=lambda: SIGNS)
    run = store.create(new_run())
    texts = ("a", "b", "c", "d")
    for step in range(1, 21):
        called = {"calls_search": 1} if step < 11 else {"turns": 1}
        episodes = tuple(episode(f"{text} {step}", **(called if text != "a" else {"calls_open": 2})) for text in texts)
        group = RolloutGroup(prompt=PROMPTS[0], rubric=RUBRIC, rollouts=episodes)
        metrics = {"step": step, "tools/used_fraction": 1.0 if step < 11 else 0.25}
        store.record(run.id, RunStep(step=step, metrics=metrics, groups=(group,)))
        assert step > 10 or not store.report(run.id).alarms
    (alarm,) = store.report(run.id).alarms
    assert [one.text for one in alarm.examples] == ["b 20", "c 20"][:EXAMPLES]
    assert all(one.messages and one.scores == {"training reward": 0.5} for one in alarm.examples)
