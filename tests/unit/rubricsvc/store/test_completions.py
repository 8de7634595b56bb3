"""Samples are stored once for each prompt, settings and number; the best rollouts come first."""

from __future__ import annotations

from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.services.runs import Runs
from rubricsvc.store import completions, runs
from rubricsvc.store.session import Database
from tests.recorded_run import new_run, run_step
from tests.rows import add_completion

SETTINGS = Completion(policy="p", sampling={"model": "m", "temperature": 1.0, "seed": None})


def sample(number: int, text: str, **sampling: float) -> Completion:
    return Completion(text=text, policy="p", sampling={**SETTINGS.sampling, "sample": number, **sampling})


def test_add_samples_stores_each_number_once(each_db: Database) -> None:
    with each_db.write() as session:
        one, two = (completions.add_prompt(session, Prompt.of(text)).id for text in ("One?", "Two?"))
        add_completion(session, Completion(text="imported", policy="p"), one)
        add_completion(session, sample(7, "hotter", temperature=2.0), one)
        assert len(completions.add_samples(session, [(one, sample(0, "a")), (one, sample(1, "a"))])) == 2
        cut_off = sample(1, "another text").model_copy(
            update={"sampling": sample(1, "").sampling | {"truncated": True}}
        )
        again = [(one, cut_off), (one, sample(2, "b")), (two, sample(1, "c")), (one, sample(7, "colder"))]
        assert len(completions.add_samples(session, again)) == 3


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
