"""Stored rewards by prompt: those of rollouts, else of the newest jobs; of one policy and one judge only."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import update
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.store import completions, items, jobs, judges, prompts, rubrics, runs
from rubricsvc.store.session import Database
from rubricsvc.store.tables import ItemRow
from tests.rows import RUBRIC

JUDGE, OTHER = (Judge(name=f"of {model}", engine="instant", model=model) for model in ("one", "two"))
SCORED, SAMPLED = Prompt.of("scored by jobs"), Prompt.of("sampled by a run")


def stored(session: Session, prompt: Prompt, texts: list[str], policy: str = "mine") -> tuple[list[int], int]:
    """Store completions, and return their ids and that of the prompt's rubric."""
    prompt_id = prompts.add(session, prompt).id
    rubric = rubrics.add(session, RUBRIC, name=prompt.text, prompt_id=prompt_id)
    pairs = [(prompt_id, Completion(text=text, policy=policy)) for text in texts]
    return completions.add_many(session, pairs), rubric.id


def score(session: Session, judge: Judge, values: Mapping[int, float | None], rubric_id: int, key: str) -> None:
    items = [(id_, rubric_id) for id_ in values]
    job = jobs.submit(session, judge_id=judges.add(session, judge).id, items=items, key=key)
    for id_, value in values.items():
        found = (ItemRow.job_id == job.id) & (ItemRow.completion_id == id_)
        session.execute(update(ItemRow).where(found).values(reward=value))


def test_of_prompts_takes_rollouts_else_newest_jobs(each_db: Database) -> None:
    with each_db.write() as session:
        (a, b, c), rubric = stored(session, SCORED, ["a", "b", "c"])
        (theirs,), _ = stored(session, SCORED, ["d"], policy="theirs")
        score(session, JUDGE, {a: 0.1, b: 0.2, c: None, theirs: 0.9}, rubric, "first")
        score(session, JUDGE, {a: 0.3}, rubric, "again")
        score(session, OTHER, {b: 0.8}, rubric, "other")
        (x,), rubric = stored(session, SAMPLED, ["x"])
        score(session, JUDGE, {x: 0.7}, rubric, "run")
        judge_id = judges.get(session, JUDGE.name).id
        run = runs.begin(session, "key", done=0, name="run", host="here", folder="f", steps_total=2, config={})
        plain = {"prompt_id": prompts.add(session, SAMPLED).id, "completion_id": x, "rubric_id": rubric}
        plain |= {"judge_id": judge_id, "tokens": 1, "truncated": False, "verdicts": []}
        runs.write_step(session, run.id, 1, {}, [plain | {"reward": 0.4}, plain | {"reward": 0.4}])
        runs.write_step(session, run.id, 2, {}, [plain | {"reward": None}, plain | {"reward": 0.6}])
    with each_db.read() as session:
        digests = [SCORED.digest, SAMPLED.digest, "0" * 64]
        found = items.rewards_of_prompts(session, digests, policy="mine", judge=JUDGE.digest)
    assert {key: sorted(values) for key, values in found.items()} == {
        (SCORED.digest, RUBRIC.digest): [0.2, 0.3],
        (SAMPLED.digest, RUBRIC.digest): [0.4, 0.4, 0.6],
    }
