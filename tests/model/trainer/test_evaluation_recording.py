"""Evaluations and baselines of a tiny policy that are recorded, also while the database is away."""

import json
from pathlib import Path
from threading import Event
from typing import Any

from rubricsvc.schemas.runs import StoredEvaluation, StoredEvaluationCompletion
from rubricsvc.services.runs import Runs
from rubricsvc.store import completions
from rubricsvc.store.session import Database
from tests.model.trainer.held_out import HELD_OUT, eval_config, evaluation, evaluator, length
from tests.model.trainer.recording.test_recorder import Outage, outage, stored
from tests.model.trainer.tiny import TASKS, share_of_a, tiny_policy
from trainer import recording
from trainer.evaluation import LINES, read_baselines, run_baselines
from trainer.loop import train
from trainer.recording import UNDELIVERED, Metrics, RunRecorder
from trainer.rewards import CallableRewards

__all__ = ["outage"]

REWARDS = CallableRewards(share_of_a)
STEPS = 4


def trained(db: Database, out: Path, *, resume: bool = False, record: bool = True, **options: Any) -> None:
    """Train with evaluations after every second step, with a recorder that never beats."""
    config = eval_config(out, **{"steps": STEPS} | {key: options.pop(key) for key in ("steps",) if key in options})
    stop = Event()
    if not record:
        train(tiny_policy(), TASKS, REWARDS, config, evaluation=evaluation(config), **options)
        return
    with RunRecorder(Runs(db), "tiny-1", out, stop, heartbeat_seconds=60.0) as recorder:
        options |= {"evaluation": evaluation(config, recorder=recorder), "recorder": recorder}
        train(tiny_policy(), TASKS, REWARDS, config, stop=stop, resume=resume, **options)


def on_record(db: Database) -> list[StoredEvaluation]:
    return list(Runs(db).evaluations(1))


def completions_of(db: Database, evaluation_id: int) -> list[StoredEvaluationCompletion]:
    return list(Runs(db).evaluation_completions(1, evaluation_id=evaluation_id, limit=200))


def check_complete(db: Database, out: Path, steps: list[int]) -> None:
    """The record has the lines, and the completions that these are computed from."""
    lines = {line["step"]: line for line in recording.read(out, LINES)}
    found = {one.step: one for one in on_record(db) if one.name == "step"}
    assert sorted(found) == sorted(lines) == steps
    for step, one in found.items():
        assert one.line == lines[step]
        kept = completions_of(db, one.id)
        assert len(kept) == len(HELD_OUT) * 4 and sum(each.greedy for each in kept) == len(HELD_OUT)
        for place, row in enumerate(kept):
            with db.read() as session:
                stored_row = completions.get(session, row.completion_id)
                value, prompt = stored_row.value, stored_row.prompt.value
            rewards = {each.score: each.reward for each in row.rewards}
            expected = (step, length(prompt, value.text), HELD_OUT[place // 4].prompt)
            assert (value.step, rewards["gold"], prompt) == expected
            if row.greedy:
                assert rewards["reward"] == one.line["values"]["reward"]["greedy"][place // 4]


def test_train_records_evaluations(db: Database, tmp_path: Path) -> None:
    trained(db, tmp_path / "run")
    check_complete(db, tmp_path / "run", [0, 2, 4])
    trained(db, tmp_path / "run", resume=True, steps=6)
    check_complete(db, tmp_path / "run", [0, 2, 4, 6])


def test_recorder_keeps_evaluations_while_the_database_is_away(outage: Outage, tmp_path: Path) -> None:
    out = tmp_path / "run"

    def on_step(step: Metrics) -> None:
        if step["step"] == 1:
            outage.begin()

    trained(outage.db, out, on_step=on_step)
    kept = [json.loads(line) for line in (out / UNDELIVERED).read_text().splitlines()]
    expected = [(2, False), (2, True), (3, False), (4, False), (4, True)]
    assert [(one["step"], "line" in one) for one in kept[:-1]] == expected
    outage.end()
    assert [one.step for one in on_record(outage.db)] == [0]
    trained(outage.db, out, resume=True, steps=6)
    check_complete(outage.db, out, [0, 2, 4, 6])
    assert stored(outage.db).steps == 6 and not (out / UNDELIVERED).exists()
    outage.db.close()


def with_baselines(db: Database, out: Path, key: str = "tiny-1", **options: Any) -> list[Metrics] | None:
    config = eval_config(out, steps=STEPS)
    policies = tiny_policy, tiny_policy
    with RunRecorder(Runs(db), key, out, Event()) as recorder:
        recorder.begin({"steps": STEPS}, None, recording.read(out))
        lines = run_baselines(config, policies, TASKS, REWARDS, evaluator(config), recorder=recorder, **options)
        recorder.set_state("finished")
        return lines


def baselines_on_record(db: Database) -> dict[str, StoredEvaluation]:
    return {one.name: one for one in on_record(db) if one.name != "step"}


def test_baselines_are_recorded_as_evaluations_of_the_run(db: Database, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained(db, out)
    lines = with_baselines(db, out)
    assert lines is not None
    found = baselines_on_record(db)
    assert [one.line for one in found.values()] == lines == read_baselines(out)
    assert list(found) == ["start", "best_of_n", "best_of_n_supervised"]
    assert [len(completions_of(db, one.id)) for one in found.values()] == [0, 18, 24], "the start's are of step 0"
    assert stored(db).status == "finished"
    before = {name: one.id for name, one in found.items()}
    assert with_baselines(db, out) == lines
    assert {name: one.id for name, one in baselines_on_record(db).items()} == before, "they are on record already"
