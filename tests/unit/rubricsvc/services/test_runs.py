"""Training runs and their evaluations recorded in a database, and read again."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select, update

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Message
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.schemas.runs import RolloutGroup, RunHeartbeat, RunStep
from rubricsvc.services.runs import EXAMPLES, Runs
from rubricsvc.store import completions, jobs, judges, leases, rubrics, runs
from rubricsvc.store.session import Database
from rubricsvc.store.tables import (
    Base,
    CompletionRow,
    EvaluationCompletionRow,
    EvaluationRewardRow,
    EvaluationRow,
    RolloutRow,
    RubricRow,
    RunMetricsRow,
    RunRow,
)
from tests.recorded_run import PROMPTS, RUBRIC, evaluation_line, new_run, rollout, run_evaluation, run_step
from tests.rows import item_result

STEPS = (RunRow, RunMetricsRow, RolloutRow, CompletionRow)
EVALUATIONS = (EvaluationRow, EvaluationCompletionRow, EvaluationRewardRow, CompletionRow)


def counts(db: Database, tables: tuple[type[Base], ...] = STEPS) -> tuple[int, ...]:
    with db.read() as session:
        return tuple(session.scalar(select(func.count()).select_from(table)) or 0 for table in tables)


def test_record_stores_a_step_with_its_rollouts_once(each_db: Database) -> None:
    store = Runs(each_db)
    run = store.create(new_run())
    assert (run.id, run.status, run.steps, run.stop_requested) == (1, "running", 0, False)
    for step in (run_step(1), run_step(2), run_step(2)):
        store.record(run.id, step)
    assert counts(each_db) == (1, 2, 8, 8)
    found = store.get(run.id)
    assert (found.steps, found.rollouts, found.unscored) == (2, 8, 4)
    assert (found.reward_first, found.config) == (0.5, {"steps": 9})
    with each_db.read() as session:
        rows = list(store.rollouts(run.id, step=2))
        expected = [(2, 0, 0.5, None), (2, 1, None, "timeout"), (2, 2, 0.5, None), (2, 3, None, "timeout")]
        assert [(row.step, row.place, row.reward, row.null_reason) for row in rows] == expected
        assert [row.verdicts for row in rows] == [(Verdict.scored("right", 0.5),), ()] * 2
        assert [row.logprob_sum for row in rows] == [-1.5] * 4
        assert [len(page) for page in (list(store.rollouts(run.id, after=rows[1].id - 2, limit=3)),)] == [3]
        completion = completions.get(session, rows[3].completion_id)
        assert (completion.value.text, completion.prompt.value) == ("text 2.1.1", PROMPTS[1])
        assert (completion.policy, completion.value.sampling["temperature"]) == ("tiny", 1.0)


def test_record_of_one_step_by_several_at_once_stores_it_once(each_db: Database) -> None:
    store = Runs(each_db)
    run = store.create(new_run())
    with ThreadPoolExecutor(8) as pool:
        for number in (1, 2):
            list(pool.map(lambda _, number=number: store.record(run.id, run_step(number)), range(16)))
            list(pool.map(lambda _: store.record_evaluation(run.id, run_evaluation(0)), range(16)))
    assert counts(each_db)[:3] == (1, 2, 8) and len(list(Runs(each_db).evaluations(run.id))) == 1
    assert len(list(Runs(each_db).evaluation_completions(run.id))) == 4


def test_begin_deletes_later_steps_of_the_same_run_only(each_db: Database) -> None:
    store = Runs(each_db)
    first, other = store.create(new_run()), store.create(new_run("other"))
    for run in (first, other):
        for step in (1, 2, 3):
            store.record(run.id, run_step(step))
    store.heartbeat(first.id, RunHeartbeat(state="failed", reason="no judge"))
    failed = store.get(first.id)
    assert (failed.status, failed.reason, failed.finished_at is None) == ("failed", "no judge", False)
    again = store.create(new_run(done=1, steps_total=20))
    assert (again.id, again.status, again.reason, again.finished_at) == (first.id, "running", None, None)
    assert (again.steps, again.steps_total, store.get(first.id).rollouts) == (1, 20, 4)
    assert (store.get(other.id).steps, store.get(other.id).rollouts) == (3, 12)


def test_record_joins_what_people_authored(each_db: Database) -> None:
    with each_db.write() as session:
        prompt = completions.add_prompt(session, PROMPTS[0])
        rubrics.add(session, RUBRIC, name="shared")
        own = rubrics.add(session, RUBRIC, name="own", prompt_id=prompt.id)
    store = Runs(each_db)
    store.create(new_run())
    store.record(1, run_step(1))
    with each_db.read() as session:
        assert [row.rubric for row in list(store.rollouts(1))] == ["own@1", "own@1", "shared@1", "shared@1"]
        assert session.scalar(select(func.count()).select_from(RubricRow)) == 2
        assert [row.prompt_id == prompt.id for row in list(store.rollouts(1))] == [True, True, False, False]
    assert own.ref == "own@1"


def test_record_stores_new_rubrics_under_names_that_are_free(each_db: Database) -> None:
    other, second = (RUBRIC.model_copy(update={"min_coverage": share}) for share in (0.25, 0.5))
    with each_db.write() as session:
        rubrics.add(session, other, name="taken")
    groups = [
        RolloutGroup(prompt=prompt, prompt_name=f"p{at}", rubric=one, rubric_name=name, rollouts=(rollout("text"),))
        for at, (prompt, one, name) in enumerate(zip(PROMPTS, (RUBRIC, second), ("free", "taken"), strict=True))
    ]
    store = Runs(each_db)
    store.create(new_run())
    for _ in range(2):
        store.record(1, RunStep(step=1, metrics={}, groups=tuple(groups)))
    with each_db.write() as session:
        assert [row.rubric for row in store.rollouts(1)] == ["free@1", f"taken-{second.digest[:12]}@1"]
        assert [completions.get_prompt(session, f"p{at}").value for at in (0, 1)] == list(PROMPTS)
        own = completions.get_prompt(session, "p0").id  # as of an import, which finds it
        assert rubrics.add(session, RUBRIC, name="free", prompt_id=own).version == 1
        assert rubrics.get(session, "taken").value == other


def scored_item(db: Database) -> tuple[int, Completion]:
    """An item of a job, and its completion."""
    completion = Completion(text="one", policy="tiny", step=0)
    with db.write() as session:
        prompt = completions.add_prompt(session, PROMPTS[0])
        rubric = rubrics.add(session, RUBRIC, name="own", prompt_id=prompt.id)
        judge = judges.add(session, Judge(name="j", model="m"))
        (id_,) = completions.add_many(session, [(prompt.id, completion)])
        jobs.submit(session, judge_id=judge.id, items=[(id_, rubric.id)])
    with db.write() as session:
        (lease,) = leases.claim(session, 1, limit=1, worker="w", seconds=60.0)
        leases.record(session, [item_result(lease, RUBRIC, [Verdict.scored("right", 0.25)])])
    return lease.item_id, completion


@pytest.mark.parametrize(("text", "item", "error"), [("two", 0, InvalidError), ("one", 1, NotFoundError)])
def test_record_refuses_an_item_of_another_completion(
    db: Database, text: str, item: int, error: type[Exception]
) -> None:
    item_id, _ = scored_item(db)
    group = RolloutGroup(prompt=PROMPTS[0], rubric=RUBRIC, rollouts=(rollout(text, item_id=item_id + item),))
    Runs(db).create(new_run())
    with pytest.raises(error):
        Runs(db).record(1, RunStep(step=1, metrics={"step": 1}, groups=(group,)))
    assert counts(db)[1:3] == (0, 0)


def age(db: Database, seconds: float) -> None:
    with db.write() as session:
        session.execute(update(RunRow).values(seen_at=RunRow.seen_at - seconds))


def test_runs_are_lost_while_their_trainer_is_silent(each_db: Database) -> None:
    store = Runs(each_db)
    store.create(new_run())
    store.heartbeat(1, RunHeartbeat(state="paused", reason="the judge is down"))
    assert (store.get(1).status, store.get(1).reason) == ("paused", "the judge is down")
    age(each_db, runs.LOST_SECONDS + 1)
    assert store.get(1).status == "lost" and store.heartbeat(1, RunHeartbeat()).status == "paused"
    store.heartbeat(1, RunHeartbeat(state="finished"))
    age(each_db, runs.LOST_SECONDS + 1)
    assert store.get(1).status == "finished"


def test_request_stop_and_remove_depend_on_whether_a_run_is_live(each_db: Database) -> None:
    store = Runs(each_db)
    store.create(new_run())
    store.record(1, run_step(1))
    with pytest.raises(ConflictError):
        store.delete(1)
    store.stop(1)
    assert store.record(1, run_step(2)).stop_requested and not store.create(new_run(done=2)).stop_requested
    store.heartbeat(1, RunHeartbeat(state="stopped"))
    with pytest.raises(ConflictError):
        store.stop(1)
    store.delete(1)
    assert counts(each_db) == (0, 0, 0, 8)
    with pytest.raises(NotFoundError):
        store.get(1)


def test_record_stores_an_evaluation_with_its_completions_and_rewards(each_db: Database) -> None:
    store = Runs(each_db)
    store.create(new_run())
    store.record(1, run_step(1))
    for evaluation in (run_evaluation(0), run_evaluation(1)):
        assert store.record_evaluation(1, evaluation).steps == 1
    assert counts(each_db, EVALUATIONS) == (2, 8, 16, 12)
    expected = [("step", 0, evaluation_line(0)), ("step", 1, evaluation_line(1))]
    assert [(one.name, one.step, one.line) for one in store.evaluations(1)] == expected
    (_, second) = store.evaluations(1)
    found = list(store.evaluation_completions(1, evaluation_id=second.id))
    expected = [(0, False, False, 1), (1, True, True, 1), (2, False, False, 1), (3, True, True, 1)]
    assert [(one.place, one.greedy, one.truncated, one.rubric_id) for one in found] == expected
    rewards = [[(each.score, each.reward, each.null_reason) for each in one.rewards] for one in found]
    expected = [[("reward", 0.75, None), ("gold", 0.25, None)], [("reward", None, "timeout"), ("gold", 0.25, None)]]
    assert rewards[:2] == expected
    assert found[2].rewards[0].verdicts == (Verdict.scored("right", 0.75),)
    with each_db.read() as session:
        row = completions.get(session, found[3].completion_id)
        assert (row.value.text, row.value.step, row.prompt.value) == ("eval 1.1 greedy", 1, PROMPTS[1])
        assert row.value.sampling == {"temperature": 0.0}
        rollouts = list(store.rollouts(1))
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
    expected = [("best_of_n_supervised", 8), ("step", 0), ("step", 4)]
    assert sorted((one.name, one.step) for one in store.evaluations(1)) == expected
    assert counts(each_db, EVALUATIONS)[:3] == (3, 12, 24)
    with each_db.read() as session:
        (first,) = (one.id for one in store.evaluations(1) if one.step == 0)
        (found, *_) = store.evaluation_completions(1, evaluation_id=first)
        row = completions.get(session, found.completion_id)
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
    store = Runs(db)
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
