"""Rubrics evolved on recorded verdicts and labels: a true improvement is found, and none in permuted labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rubricsvc.core.evolution import EvolutionReport
from rubricsvc.core.label import Label
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import ConflictError, InvalidError
from rubricsvc.services import evolving
from rubricsvc.services.evolution_reports import evolution_report
from rubricsvc.services.evolution_search import EvolutionSearch
from rubricsvc.store import evolutions, jobs, judges, labels, rubrics
from rubricsvc.store.session import Database
from rubricsvc.store.tables import ItemRow
from tests.unit.rubricsvc.services.test_comparing import score

PROMPTS, EACH = 40, 4
WEIGHTS = {"right": 1.0, "clear": 1.0, "long": 6.0, "rude": -4.0}
RUBRIC = Rubric(criteria=tuple(Criterion(key=key, text=f"Is {key}.", weight=w) for key, w in WEIGHTS.items()))
SMALL: dict[str, Any] = {"generations": 2, "islands": 2, "children": 6}


def no_job(job_id: int) -> None:
    raise AssertionError(f"job {job_id}")


def labelled(db: Database, *, permuted: bool = False, prompts: int = PROMPTS, rubric: Rubric = RUBRIC) -> None:
    """Completions whose scores by a person follow "right" and "clear", which the start weighs least."""
    random = np.random.default_rng(1)
    values = random.integers(0, 2, (prompts * EACH, len(WEIGHTS))).astype(float)
    texts = [(f"prompt {n // EACH}", f"text {n}", list(row)) for n, row in enumerate(values.tolist())]
    score(db, "j", texts, rubric=rubric)
    overall = (values @ [0.6, 0.25, 0.0, 0.0] + random.uniform(0, 0.15, len(values))).round(3)
    if permuted:
        overall = random.permutation(overall)
    with db.write() as session:
        entries = [
            (n + 1, 1, Label(criterion="overall", annotator="ann", value=value))
            for n, value in enumerate(overall.tolist())
        ]
        labels.add_many(session, entries)


def begin(db: Database, **options: Any) -> int:
    with db.write() as session:
        return evolving.start(session, "r", **(SMALL | options)).row.id


def evolved(db: Database, **options: Any) -> EvolutionReport:
    number = begin(db, **options)
    EvolutionSearch(db, number, no_job).run()
    return report(db, number)


def report(db: Database, number: int) -> EvolutionReport:
    with db.read() as session:
        return evolution_report(session, number)


@pytest.mark.parametrize("objective", ["preferences", "scores"])
def test_evolution_finds_an_improvement_by_construction(each_db: Database, objective: str) -> None:
    labelled(each_db)
    found = evolved(each_db, objective=objective)
    assert found.summary.status == "completed" and found.held_out is not None
    first = found.held_out.objectives[0]
    assert (first.objective, found.held_out.gain) == (objective, True)
    assert first.best > first.start and first.difference.low is not None and first.difference.low > 0
    assert {one.objective for one in found.held_out.objectives} == {"preferences", "scores"}
    assert found.held_out.mcnemar.better > found.held_out.mcnemar.worse and found.held_out.mcnemar.p < 0.01
    assert found.lineage[0].operator == "start" and found.lineage[-1].number == found.summary.best
    assert found.changes


def test_evolution_reports_no_gain_on_permuted_labels(db: Database) -> None:
    labelled(db, permuted=True)
    for seed in range(3):
        found = evolved(db, seed=seed)
        assert found.held_out is not None and not found.held_out.gain
        low = found.held_out.objectives[0].difference.low
        assert low is not None and low <= 0


def test_evolution_is_the_same_for_a_seed_and_when_it_is_continued(db: Database) -> None:
    labelled(db)
    whole = evolved(db, seed=1)
    number, seen = begin(db, seed=1, generations=3, children=5), []

    def interrupt(done: int, total: int, note: str) -> None:
        seen.append(done)
        if done == 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EvolutionSearch(db, number, no_job, on_progress=interrupt).run()
    assert report(db, number).summary.status == "stopped" and len(seen) == 14
    EvolutionSearch(db, number, no_job).run()
    resumed = report(db, number)
    with db.write() as session:
        evolutions.get(session, number).key = "other"
    again = evolved(db, seed=1, generations=3, children=5)
    assert again.summary.id != number and again.candidates == resumed.candidates
    assert again.held_out == resumed.held_out
    assert whole.candidates != resumed.candidates


def test_evolution_of_verdicts_finds_the_threshold(each_db: Database) -> None:
    db = each_db
    random = np.random.default_rng(3)
    met = random.integers(0, 2, (PROMPTS * EACH, len(WEIGHTS)))
    values = np.where(met, 0.42, 0.18) + random.uniform(0, 0.02, met.shape)
    texts = [(f"prompt {n // EACH}", f"text {n}", list(row)) for n, row in enumerate(values.tolist())]
    score(db, "j", texts, rubric=RUBRIC)
    with db.write() as session:
        rows = [
            (n + 1, 1, Label(criterion=key, annotator="ann", value=float(met[n, column])))
            for n in range(len(met))
            for column, key in enumerate(WEIGHTS)
        ]
        labels.add_many(session, rows)
    found = evolved(db)
    assert found.summary.objective == "verdicts" and found.best is not None and found.best.threshold in (0.2, 0.3, 0.4)
    assert found.held_out is not None and found.held_out.gain and found.held_out.objectives[0].best == 1.0
    assert found.judge is not None and found.judge.threshold == found.best.threshold
    with db.write() as session:
        assert evolving.save_best(session, evolutions.get(session, found.summary.id)) is None


def test_evolution_takes_labels_of_the_same_question_under_another_version(db: Database) -> None:
    labelled(db)
    edited = RUBRIC.model_copy(update={"formula": "healthbench"})
    with db.write() as session:
        other = rubrics.add(session, edited, name="r", parent_id=1)
        rows = [
            (n, other.id, Label(criterion="right", annotator="ann", value=float(n % 3 == 0)))
            for n in range(1, PROMPTS * EACH)
        ]
        labels.add_many(session, rows)
        labels.add_many(session, [(1, 1, Label(criterion="right", annotator="ann", value=0.75))])
    with db.read() as session:
        row = rubrics.get(session, "r@1")
        found = labels.criterion_labels(session, labels.Selection(1, None, 1), row)
    assert len(found) == len(rows) and {id_: value for id_, _, value in found}[1] == 0.75
    assert {key for _, key, _ in found} == {"right"}


def test_evolution_splits_by_prompt(db: Database) -> None:
    labelled(db)
    parts = evolved(db, held_out=0.25).parts
    assert (parts.search_prompts + parts.held_out_prompts, parts.held_out_prompts) == (PROMPTS, 10)


def test_start_returns_the_same_evolution_until_labels_change(db: Database) -> None:
    labelled(db)
    first = begin(db)
    assert begin(db) == first != begin(db, seed=7)
    with db.write() as session:
        labels.add_many(session, [(1, 1, Label(criterion="overall", annotator="bob", value=0.9))])
    assert begin(db) not in (first, None)
    with pytest.raises(ConflictError):
        EvolutionSearch(db, first, no_job)


def test_evolution_of_two_jobs_holds_the_second_out(db: Database) -> None:
    labelled(db)
    first = [n for n in range(1, PROMPTS * EACH + 1) if (n - 1) // EACH % 3]
    jobs_of_parts = []
    for ids in (first, [n for n in range(1, PROMPTS * EACH + 1) if n not in first]):
        with db.write() as session:
            job_id = jobs.submit(session, judge_id=1, items=[(id_, 1) for id_ in ids]).id
        jobs_of_parts.append(job_id)
    assert begin(db) and jobs_of_parts == [2, 3]
    copy_verdicts(db, *jobs_of_parts)
    parts = evolved(db, job_id=2, held_out_job_id=3).parts
    assert (parts.search_prompts, parts.held_out_prompts) == (26, 14)
    assert evolved(db).summary.id == 1  # newer items with the same verdicts change nothing


def copy_verdicts(db: Database, *job_ids: int) -> None:
    """Give the items of these jobs the questions and rewards of the first job's."""
    with db.write() as session:
        old = {one.completion_id: one for one in session.query(ItemRow).filter_by(job_id=1)}
        for row in session.query(ItemRow).filter(ItemRow.job_id.in_(job_ids)):
            row.question_set, row.reward, row.state = (old[row.completion_id].question_set, 0.0, "done")


def test_stopped_evolution_records_nothing_more(db: Database) -> None:
    labelled(db)
    number = begin(db)

    def stop(done: int, total: int, note: str) -> None:
        if done == 3:
            with db.write() as session:
                evolutions.stop(session, number)

    with pytest.raises(ConflictError):
        EvolutionSearch(db, number, no_job, on_progress=stop).run()
    found = report(db, number)
    assert (found.summary.status, found.summary.reached) == ("stopped", 2)


def test_best_becomes_a_draft_of_the_start(db: Database) -> None:
    labelled(db)
    found = evolved(db)
    with db.write() as session:
        added = evolving.save_best(session, evolutions.get(session, found.summary.id), by="ann")
    assert added is not None and added.conflict is None
    with db.read() as session:
        row = rubrics.get(session, "r@2")
        assert (row.state, row.parent_id, row.origin, row.added_by) == ("draft", 1, "evolved", "ann")
        assert rubrics.get(session, "r").version == 1
        assert found.best is not None and row.value == found.best.rubric


def test_best_under_another_name_and_after_another_edit(db: Database) -> None:
    labelled(db)
    number = evolved(db).summary.id
    with db.write() as session:
        edited = RUBRIC.model_copy(update={"formula": "mean", "criteria": RUBRIC.criteria[:2]})
        rubrics.add(session, edited, name="r", parent_id=1)
        row = evolutions.get(session, number)
        named = evolving.save_best(session, row, name="new")
        assert named is not None and (named.row.ref, named.row.parent_id, named.conflict) == ("new@1", 1, None)
        refused = evolving.save_best(session, row)
        assert refused is not None and refused.conflict is not None and refused.row.state == "draft"


def test_start_refuses_too_few_labels_with_their_numbers(db: Database) -> None:
    labelled(db, prompts=6)
    with pytest.raises(InvalidError) as error:
        begin(db)
    assert error.value.path == "labels" and "20" in error.value.message


def test_start_refuses_one_class(db: Database) -> None:
    labelled(db)
    with db.write() as session:
        entries = [(n + 1, 1, Label(criterion="overall", annotator="ann", value=1.0)) for n in range(PROMPTS * EACH)]
        labels.add_many(session, entries, replace=True)
    for objective in ("scores", "preferences"):
        with pytest.raises(InvalidError) as error:
            begin(db, objective=objective)
        assert error.value.path == "labels"


def test_start_refuses_a_rubric_without_verdicts(db: Database) -> None:
    labelled(db)
    with db.write() as session:
        rubrics.add(session, RUBRIC.model_copy(update={"formula": "healthbench"}), name="other")
    with db.write() as session, pytest.raises(InvalidError) as error:
        evolving.start(session, "other", judge="j")
    assert "verdicts" in error.value.message


def test_start_refuses_parts_that_share_prompts(db: Database) -> None:
    labelled(db)
    with db.write() as session, pytest.raises(InvalidError) as error:
        evolving.start(session, "r", job_id=1, held_out_job_id=1)
    assert error.value.path == "held_out_job" and str(PROMPTS) in error.value.message


def test_start_refuses_verdicts_that_nothing_can_change(db: Database) -> None:
    labelled(db)
    with db.write() as session:
        rows = [
            (n, 1, Label(criterion="right", annotator="ann", value=float(n % 3 == 0))) for n in range(1, PROMPTS * EACH)
        ]
        labels.add_many(session, rows)
        judge = judges.get(session, "j")
        judge.content = judge.content | {"threshold": 0.5}
        session.flush()
        with pytest.raises(InvalidError):
            evolving.start(session, "r", objective="verdicts")
