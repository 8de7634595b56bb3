"""Labels beside a judge's newest verdicts, on both databases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Endpoint, Judge, Price
from rubricsvc.core.label import Label
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Verdict
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.store import completions, jobs, judges, labels, leases, prompts, rubrics, verdicts
from rubricsvc.store.session import Database
from tests.rows import item_result, questions

RUBRIC = Rubric(criteria=(Criterion(key="a", text="Says a."), Criterion(key="b", text="Says b.")))


OLD, NEW, NEWER = "old", "new", "newer"


def keep(session: Session, job_id: int, way: str, found: dict[int, list[Verdict]]) -> None:
    """Score the job as a worker does: stored verdicts are taken over."""
    judge_id, asked = jobs.get(session, job_id).judge_id, questions(RUBRIC, way)
    results = []
    for lease in leases.claim(session, judge_id, limit=10, worker="w", seconds=60):
        (known,) = verdicts.known(session, [(lease.completion_id, asked)])
        merged = {verdict.criterion: verdict for verdict in found.get(lease.completion_id, [])} | known
        results.append(item_result(lease, RUBRIC, [*merged.values()], way=way, known=known))
    leases.record(session, results)


def submit(session: Session, judge_id: int, rubric_id: int, ids: Sequence[int], key: str) -> int:
    return jobs.submit(session, judge_id=judge_id, items=[(id_, rubric_id) for id_ in ids], key=key).id


@pytest.fixture
def filled(each_db: Database) -> Database:
    """A prompt, a rubric, two completions and a judge that has judged criterion ``a`` of both; ``b`` failed on one."""
    with each_db.write() as session:
        prompt = prompts.add(session, Prompt.of("Why?"))
        rubric = rubrics.add(session, RUBRIC, name="r", prompt_id=prompt.id)
        ids = completions.add_many(session, [(prompt.id, Completion(text=text)) for text in ("one", "two")])
        judge = judges.add(session, Judge(name="j", model="m"))
        first = submit(session, judge.id, rubric.id, ids[:1], "first")
        keep(session, first, OLD, {1: [Verdict.scored("a", 0.1), Verdict.scored("b", 0.1)]})
        second = submit(session, judge.id, rubric.id, ids, "second")
        first_only = {1: [Verdict.scored("a", 0.9, probability=0.9)]}
        keep(session, second, NEW, first_only | {2: [Verdict.scored("a", 0.2), Verdict.failed("b", "timeout")]})
    return each_db


def test_judged_pairs_each_label_with_the_newest_verdict(filled: Database) -> None:
    said = [
        (1, 1, Label(criterion="a", annotator="ann", value=1.0)),
        (1, 1, Label(criterion="b", annotator="ann", value=1.0)),
        (2, 1, Label(criterion="b", annotator="ann", value=0.0)),
        (2, 1, Label(criterion="overall", annotator="ann", value=0.5)),
    ]
    with filled.write() as session:
        labels.add_many(session, said)
    with filled.read() as session:
        rows = labels.judged_labels(session, 1)
        of_first = labels.judged_labels(session, 1, job_id=1)
        of_no_job = labels.judged_labels(session, 1, job_id=9)
    assert [row.verdict.value if row.verdict else None for row in rows] == [0.9, None, None, None]
    assert rows[1].verdict is None and rows[2].verdict is not None and rows[2].verdict.outcome == "failed"
    assert rows[3].criterion is None and set(rows[3].verdicts) == {"a", "b"}
    assert [row.verdict and row.verdict.value for row in of_first] == [0.1, 0.1]
    assert of_no_job == []


def test_judged_includes_verdicts_shared_with_another_judge(filled: Database) -> None:
    with filled.write() as session:
        twin = judges.add(session, Judge(name="dear", model="m", endpoint=Endpoint(price=Price(prompt=1))))
        again = rubrics.add(session, RUBRIC, name="people's file", prompt_id=1)
        keep(session, submit(session, twin.id, 1, [1], "twin"), NEW, {})
        keep(session, submit(session, 1, again.id, [1], "renamed"), NEW, {})
        for rubric_id in (1, again.id):
            labels.add_many(session, [(1, rubric_id, Label(criterion="a", annotator="ann", value=1.0))])
    with filled.read() as session:
        (of_twin, nothing), of_first = labels.judged_labels(session, twin.id), labels.judged_labels(session, 1)
    assert of_twin.verdict is not None and of_twin.verdict.value == 0.9
    assert nothing.verdicts == {}, "the twin was never asked under the other rubric"
    assert [row.verdict and row.verdict.value for row in of_first] == [0.9, 0.9]


def test_judged_shows_no_older_reward_after_a_failure(filled: Database) -> None:
    with filled.write() as session:
        labels.add_many(session, [(1, 1, Label(criterion="overall", annotator="ann", value=1.0))])
        failed = [Verdict.failed("a", "timeout"), Verdict.failed("b", "timeout")]
        keep(session, submit(session, 1, 1, [1], "third"), NEWER, {1: failed})
    with filled.read() as session:
        (row,), (older,) = labels.judged_labels(session, 1), labels.judged_labels(session, 1, job_id=1)
    assert ({v.outcome for v in row.verdicts.values()}, row.reward) == ({"failed"}, None)
    assert older.reward == pytest.approx(0.1)


def test_judged_ignores_items_not_scored_yet(filled: Database) -> None:
    with filled.write() as session:
        labels.add_many(session, [(1, 1, Label(criterion="a", annotator="ann", value=1.0))])
        submit(session, 1, 1, [1], "to come")
    with filled.read() as session:
        (row,) = labels.judged_labels(session, 1)
    assert row.verdict is not None and row.verdict.value == 0.9


def test_labels_add_rejects_contradicting_batch(filled: Database) -> None:
    said = [(1, 1, Label(criterion="a", annotator="ann", value=value)) for value in (1.0, 0.0)]
    with pytest.raises(ConflictError), filled.write() as session:
        labels.add_many(session, said)
    with filled.write() as session:
        assert labels.add_many(session, said, replace=True)[0] == labels.page(session)[0].id
        assert [row.value for row in labels.page(session)] == [0.0]


def test_labels_add_rejects_rubric_of_another_prompt(filled: Database) -> None:
    with filled.write() as session:
        other = prompts.add(session, Prompt.of("When?"))
        completion = completions.add(session, Completion(text="now"), other.id)
        with pytest.raises(InvalidError):
            labels.add_many(session, [(completion.id, 1, Label(criterion="a", annotator="ann", value=1.0))])
