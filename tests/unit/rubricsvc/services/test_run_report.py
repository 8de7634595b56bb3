"""The rollouts that an alarm shows."""

from __future__ import annotations

from typing import Any

from rubricsvc.core.prompt import Completion, Message
from rubricsvc.schemas.runs import RolloutGroup, RunStep
from rubricsvc.services.runs import EXAMPLES, Runs
from rubricsvc.store.session import Database
from tests.recorded_run import PROMPTS, RUBRIC, new_run, rollout
from trainer.monitors.measures import SIGNS


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
