"""Labels beside a judge's newest verdicts, on both databases."""

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Endpoint, Judge, Price
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.core.verdict import Label, Verdict
from rubricsvc.errors import InvalidError
from rubricsvc.store import completions, jobs, judges, labels, leases, rubrics
from rubricsvc.store.labels import judged_labels
from rubricsvc.store.session import Database
from tests.rows import add_completion, item_result, questions

RUBRIC = Rubric(criteria=(Criterion(key="a", text="Says a."), Criterion(key="b", text="Says b.")))

OLD, NEW, NEWER = "old", "new", "newer"


def keep(session: Session, job_id: int, way: str, found: dict[int, list[Verdict]]) -> None:
    """Score the job as a worker does: stored verdicts are taken over."""
    judge_id, asked = jobs.get(session, job_id).judge_id, questions(RUBRIC, way)
    results = []
    for lease in leases.claim(session, judge_id, limit=10, worker="w", seconds=60):
        (known,) = completions.known_verdicts(session, [(lease.completion_id, asked)])
        merged = {verdict.criterion: verdict for verdict in found.get(lease.completion_id, [])} | known
        results.append(item_result(lease, RUBRIC, [*merged.values()], way=way, known=known))
    leases.record(session, results)


def submit(session: Session, judge_id: int, rubric_id: int, ids: Sequence[int], key: str) -> int:
    return jobs.submit(session, judge_id=judge_id, items=[(id_, rubric_id) for id_ in ids], key=key).id


@pytest.fixture
def filled(each_db: Database) -> Database:
    """A prompt, a rubric, two completions and a judge that has judged criterion ``a`` of both; ``b`` failed on one."""
    with each_db.write() as session:
        prompt = completions.add_prompt(session, Prompt.of("Why?"))
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
        rows = judged_labels(session, 1)
        of_first = judged_labels(session, 1, job_id=1)
    assert [row.verdict.value if row.verdict else None for row in rows] == [0.9, None, None, None]
    assert rows[1].verdict is None and rows[2].verdict is not None and rows[2].verdict.outcome == "failed"
    assert rows[3].criterion is None and set(rows[3].verdicts) == {"a", "b"}
    assert [row.verdict and row.verdict.value for row in of_first] == [0.1, 0.1]


def test_judged_includes_verdicts_shared_with_another_judge(filled: Database) -> None:
    with filled.write() as session:
        twin = judges.add(session, Judge(name="dear", model="m", endpoint=Endpoint(price=Price(prompt=1))))
        again = rubrics.add(session, RUBRIC, name="people's file", prompt_id=1)
        keep(session, submit(session, twin.id, 1, [1], "twin"), NEW, {})
        keep(session, submit(session, 1, again.id, [1], "renamed"), NEW, {})
        for rubric_id, annotator in ((1, "ann"), (again.id, "bob")):
            labels.add_many(session, [(1, rubric_id, Label(criterion="a", annotator=annotator, value=1.0))])
    with filled.read() as session:
        of_twin, of_first = judged_labels(session, twin.id), judged_labels(session, 1)
    assert [row.rubric_id for row in of_twin] == [1, 1], "the twin was never asked under the other rubric"
    assert [row.rubric_id for row in of_first] == [1, 2]
    assert [row.verdict and row.verdict.value for row in of_twin] == [0.9, 0.9]
    assert [row.verdict and row.verdict.value for row in of_first] == [0.9, 0.9]


def test_labels_add_rejects_rubric_of_another_prompt(filled: Database) -> None:
    with filled.write() as session:
        other = completions.add_prompt(session, Prompt.of("When?"))
        completion = add_completion(session, Completion(text="now"), other.id)
        with pytest.raises(InvalidError):
            labels.add_many(session, [(completion.id, 1, Label(criterion="a", annotator="ann", value=1.0))])


def judge_under(session: Session, rubric: Rubric, name: str, values: dict[str, float]) -> int:
    """Let judge 1 score completion 1 under a rubric; return the job."""
    row = rubrics.add(session, rubric, name=name, prompt_id=1)
    job_id = submit(session, 1, row.id, [1], f"{name} {row.version}")
    (lease,) = leases.claim(session, 1, limit=1, worker="w", seconds=60)
    found = [Verdict.scored(key, value) for key, value in values.items()]
    leases.record(session, [item_result(lease, rubric, found, way=f"{name} {row.version}")])
    return job_id


def criterion(key: str, text: str, **fields: Any) -> Criterion:
    return Criterion(key=key, text=text, **fields)


def test_labels_follow_an_unchanged_question_into_other_versions(filled: Database) -> None:
    """Version 2 has other weights, a key renamed, a criterion reworded and one with another reference."""
    first = Rubric(criteria=tuple(criterion(key, f"Says {key}!") for key in "abcd"))
    second = Rubric(
        criteria=(
            criterion("a", "Says a!", weight=5, tags=("t",)),
            criterion("renamed", "Says b!", weight=-1, required=True),
            criterion("c", "Says c, differently."),
            criterion("d", "Says d!", reference="d"),
        )
    )
    with filled.write() as session:
        rubric_id = rubrics.add(session, first, name="v", prompt_id=1).id
        given = [Label(criterion=key, annotator="ann", value=1.0) for key in ("a", "b", "c", "d", "overall")]
        labels.add_many(session, [(1, rubric_id, label) for label in given])
        job = judge_under(session, second, "v", {"a": 0.6, "renamed": 0.7, "c": 0.8, "d": 0.9})
    with filled.read() as session:
        rows, of_job = judged_labels(session, 1), judged_labels(session, 1, job_id=job)
    assert [(row.label.criterion, row.verdict and row.verdict.value) for row in rows] == [
        ("a", 0.6),
        ("renamed", 0.7),
        ("c", None),
        ("d", None),
        ("overall", None),
    ]
    assert [row.criterion and row.criterion.tags for row in rows[:2]] == [("t",), ()]
    assert rows[4].reward is not None and rows[4].rubric_id != rubric_id
    assert [row.label.criterion for row in of_job] == ["a", "renamed", "overall"]


def test_ids_in_files_are_all_that_a_file_may_mean(each_db: Database) -> None:
    with each_db.write() as session:
        given = (("a", "sky"), ("b", "sky"), ("c", "1"))
        sky, other, digits = (completions.add_prompt(session, Prompt.of(text), id_).id for text, id_ in given)
        completions.add_prompt(session, Prompt.of("c"), "sea")
        given = [(sky, "a", "x"), (other, "a", "y"), (other, "b", "z"), (sky, None, "w")]
        ids = completions.add_many(session, [(prompt, Completion(text=text, id=id_)) for prompt, id_, text in given])
    with each_db.read() as session:
        found = [completions.prompts_in_files(session, ref) for ref in ("sky", "sea", "1", 1, "2", "none")]
        by_id = [completions.ids_in_files(session, [sky, other], id_) for id_ in ("a", "b", "none")]
        labelled = labels.page(session, job_id=1)
    assert found == [[sky, other], [digits], [digits], [sky], [other], []]
    assert by_id == [[(ids[0], sky), (ids[1], other)], [(ids[2], other)], []]
    assert labelled == []
