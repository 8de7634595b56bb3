"""Examples for trainers: which completions and pairs of a job are exported, and which are left out and counted."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from rubricsvc.core.audit import Deviation, Repeatability
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Document, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import NotFoundError
from rubricsvc.schemas.jobs import ExportKind
from rubricsvc.services.local import LocalService
from rubricsvc.store import completions, jobs, judges, rubrics
from rubricsvc.store.session import Database

LONG = " ".join(f"word{number}" for number in range(60))
Scores = dict[str, Sequence[float | None]]


def scored(db: Database, *scores: Scores) -> int:
    """Score texts under a rubric for each number they have, and return the job's id. Each mapping is a prompt."""
    with db.write() as session:
        judge = judges.add(session, Judge(name="j", model="m"))
        made, given = [], {}
        for number, texts in enumerate(scores):
            prompt = completions.add_prompt(session, Prompt.of(f"question {number}")).id
            ids = completions.add_many(session, [(prompt, Completion(text=text)) for text in texts])
            for id_, rewards in zip(ids, texts.values(), strict=True):
                for version, reward in enumerate(rewards):
                    rubric = Rubric(criteria=(Criterion(key="k", text=f"k{version}"),))
                    made.append((id_, rubrics.add(session, rubric, name=f"r{version}").id))
                    given[made[-1]] = reward
        job = jobs.submit(session, judge_id=judge.id, items=made).id
        for row in jobs.items(session, job, limit=1000):
            row.reward = given[row.completion_id, row.rubric_id]
        return job


def exported(db: Database, job: int, kind: ExportKind, **rules: Any) -> tuple[list[Any], dict[str, int]]:
    rows, left_out, after = list[Any](), Counter[str](), 0
    while after is not None:
        page = LocalService(db).jobs.export(job, kind=kind, after=after, limit=1, **rules)
        rows, after = [*rows, *page.rows], page.next
        left_out.update(page.left_out)
    short = [tuple(row[name][0]["content"] for name in ("chosen", "rejected") if name in row) for row in rows]
    if kind == "sft":
        short = [(row["completion"][0]["content"],) for row in rows]
    return short, {name: count for name, count in left_out.items() if count}


def test_sft_takes_the_best_different_completions_of_each_prompt(db: Database) -> None:
    job = scored(db, {"a": [0.5], LONG: [0.9], f"{LONG}!": [0.8], "none": [None]}, {"only": [0.1]})
    assert exported(db, job, "sft") == ([(LONG,), ("only",)], {"lower": 2, "without_reward": 1})
    expected = ([(LONG,), ("a",), ("only",)], {"near_duplicates": 1, "without_reward": 1})
    assert exported(db, job, "sft", top=2) == expected


def test_dpo_leaves_out_what_another_rubric_orders_the_other_way(db: Database) -> None:
    job = scored(db, {"a": [0.9, 0.1], "b": [0.5, 0.5], "c": [0.2, 0.0]})
    assert exported(db, job, "dpo") == ([("a", "c"), ("b", "c")], {"contradictory": 2, "near_duplicates": 2})


def test_dpo_leaves_out_pairs_within_the_noise_of_the_judge(db: Database) -> None:
    job = scored(db, {"a": [0.9], "b": [0.6], "c": [0.3], "d": [0.3]})
    every = [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    assert exported(db, job, "dpo") == (every, {"close": 1})
    measured = Repeatability(
        fingerprint="f",
        source="s",
        measured_at=datetime.now(UTC),
        repeats=5,
        completions=9,
        criteria={},
        reward=Deviation(n=9, value=0.2),
    )
    with db.write() as session:
        judges.get(session, "j").repeatability = measured.model_dump(mode="json")
    assert exported(db, job, "dpo") == ([("a", "c"), ("a", "d")], {"close": 4})  # 1.96 · sqrt(2) · 0.2 = 0.55
    assert exported(db, job, "dpo", min_margin=0.0) == (every, {"close": 1})


def test_examples_have_the_prompt_with_its_documents(db: Database) -> None:
    with db.write() as session:
        prompt = Prompt.of("Why?", documents=(Document(id="d", text="Because."),))
        row = completions.add_prompt(session, prompt)
        chat = Completion.model_validate([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "x"}])
        ids = completions.add_many(session, [(row.id, chat)])
        rubric = rubrics.add(session, Rubric(criteria=(Criterion(key="k", text="k"),)), name="r")
        judge = judges.add(session, Judge(name="j", model="m"))
        job = jobs.submit(session, judge_id=judge.id, items=[(ids[0], rubric.id)]).id
        jobs.items(session, job)[0].reward = 1.0
    (made,) = LocalService(db).jobs.export(job, kind="sft").rows
    assert made["prompt"] == [{"role": "user", "content": "[d] Because.\n\nWhy?"}]
    assert made["completion"] == [{"role": "assistant", "content": "x"}]


@pytest.mark.parametrize("kind", ["completion", "dpo"])
def test_rows_reject_an_unknown_job(db: Database, kind: ExportKind) -> None:
    with pytest.raises(NotFoundError):
        LocalService(db).jobs.export(7, kind=kind)
