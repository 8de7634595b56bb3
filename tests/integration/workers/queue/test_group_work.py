"""The queue of a comparative judge: groups are judged whole, whoever holds which lease, and once where that can be."""

from collections.abc import Iterator

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.settings import Settings
from rubricsvc.store import completions, jobs, judges, leases, rubrics
from rubricsvc.store.session import Database
from tests.preference_engine import Tasteful, answers_in
from workers.engines import ENGINES
from workers.engines.base import Engine
from workers.queue.drain import Drainer
from workers.scoring.completions import group_questions

JUDGE = Judge(name="compares", engine="comparing", model="none", mode="comparative")
RUBRIC = Rubric(criteria=(Criterion(key="best", text="Is the better answer."),))
ANSWERS = 5


def by_length(text: str) -> float:
    return len(text) / 10


@pytest.fixture
def engine() -> Iterator[Tasteful]:
    tasteful = Tasteful(by_length)
    yield use(tasteful)
    ENGINES.pop("comparing", None)


def use(engine: Tasteful) -> Tasteful:
    def factory(_: Judge) -> Engine:
        return engine

    ENGINES["comparing"] = factory
    return engine


def submit(db: Database, prompts_: int = 3) -> int:
    """A job whose groups lie across each other."""
    with db.write() as session:
        rubric = rubrics.add(session, RUBRIC, name="shared")
        rows = [completions.add_prompt(session, Prompt.of(f"question {n}")) for n in range(prompts_)]
        pairs = [(row.id, Completion(text="x" * n)) for n in range(1, ANSWERS + 1) for row in rows]
        ids = completions.add_many(session, pairs)
        judge = judges.add(session, JUDGE)
        return jobs.submit(session, judge_id=judge.id, items=[(id_, rubric.id) for id_ in ids]).id


def settings(db: Database, **changes: object) -> Settings:
    return Settings.model_validate({"database_url": db.url, "claim_size": 2, "heartbeat_seconds": 0.05, **changes})


def rewards(db: Database, job: int) -> dict[tuple[int, str], float | None]:
    with db.read() as session:
        return {(row.completion.prompt_id, row.completion.value.text): row.reward for row in jobs.items(session, job)}


RIGHT = {(prompt, "x" * n): n / 10 for prompt in (1, 2, 3) for n in range(1, ANSWERS + 1)}


def test_drain_judges_each_group_once_and_whole(each_db: Database, engine: Tasteful) -> None:
    job = submit(each_db)
    assert Drainer(each_db, settings(each_db)).run(1) is True
    assert len(engine.requests) == 3
    assert rewards(each_db, job) == pytest.approx(RIGHT)
    with each_db.read() as session:
        assert jobs.get(session, job).status == "completed"
        found = {row.fingerprint for row in completions.verdict_page(session)}
    group = [Completion(text="x" * n) for n in range(1, ANSWERS + 1)]
    assert found == set(group_questions(RUBRIC, JUDGE, group).fingerprints.values())


def test_group_shared_by_two_workers_gives_equal_verdicts(each_db: Database, engine: Tasteful) -> None:
    job = submit(each_db, prompts_=1)
    with each_db.write() as session:
        elsewhere = leases.claim(session, 1, limit=2, worker="other", seconds=60)
    assert Drainer(each_db, settings(each_db)).run(1) is True
    assert len(answers_in(engine.requests[0].shared)) == ANSWERS
    with each_db.write() as session:
        assert jobs.progress(session, job).done == ANSWERS - 2  # those that it holds, and no others
        leases.release(session, elsewhere)
    assert Drainer(each_db, settings(each_db)).run(1) is True
    assert len(engine.requests) == 2
    assert [len(answers_in(request.shared)) for request in engine.requests] == [ANSWERS] * 2
    assert list(rewards(each_db, job).values()) == pytest.approx([n / 10 for n in range(1, ANSWERS + 1)])
