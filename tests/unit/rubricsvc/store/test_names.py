"""What a name refers to."""

from itertools import product

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Completion, Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.store import completions, jobs, judges, keys, rubrics
from rubricsvc.store.session import Database, page_of
from rubricsvc.store.tables import CompletionRow, EvolutionRow, JobRow
from tests.rows import add_completion

ONE = Rubric(criteria=(Criterion(key="a", text="One."),))
TWO = Rubric(criteria=(Criterion(key="a", text="Two."),))


def test_judges_add_rejects_numbers_as_names(db: Database) -> None:
    with db.write() as session:
        row = judges.add(session, Judge(name="j", model="m"))
        with pytest.raises(InvalidError):
            judges.add(session, Judge(name="1", model="other"))
        assert judges.get(session, row.id).id == judges.get(session, "j").id == row.id
        with pytest.raises(NotFoundError):
            judges.get(session, "k")


def test_rubrics_add_counts_versions_and_reuses_identical_content(each_db: Database) -> None:
    with each_db.write() as session:
        first, same, second = (rubrics.add(session, rubric, name="r") for rubric in (ONE, ONE, TWO))
        assert (first.id, first.version, second.version) == (same.id, 1, 2)
        assert rubrics.get(session, "r").id == second.id and rubrics.get(session, "r@1").id == first.id
        assert rubrics.get(session, ONE.digest[:12]).id == first.id


def test_prompts_get_finds_every_external_id(each_db: Database) -> None:
    with each_db.write() as session:
        ids = {completions.add_prompt(session, Prompt.of("Why?"), name).id for name in ("a", "b", "b", None, "a", "c")}
        other = completions.add_prompt(session, Prompt.of("How?"), "d").id
        completions.add_prompt(session, Prompt.of("Why?"), "d")
        (id_,) = ids
        assert {completions.get_prompt(session, name).id for name in "abc"} == ids
        assert completions.get_prompt(session, id_).external_id == "a"
        with pytest.raises(InvalidError, match=f"2 prompts have the id 'd': {id_}, {other}"):
            completions.get_prompt(session, "d")


def test_get_finds_nothing_for_invalid_ids(each_db: Database) -> None:
    refs: list[int | str] = ["9" * 19, "9" * 5000, "１", "1_0", "+1", " 1", "0", "-1", 2**63, -1, 10**30]
    with each_db.write() as session:
        judges.add(session, Judge(name="j", model="m"))
        rubrics.add(session, ONE, name="r")
        completions.add_prompt(session, Prompt.of("Why?"))
        for get, ref in product((judges.get, rubrics.get, completions.get_prompt), refs):
            with pytest.raises(NotFoundError) as caught:
                get(session, ref)
            assert len(str(caught.value)) < 120


def test_add_rejects_too_long_names(each_db: Database) -> None:
    text = "x" * 201
    with each_db.write() as session:
        for add in (
            lambda: completions.add_prompt(session, Prompt.of("Why?"), text),
            lambda: rubrics.add(session, ONE, name=text),
            lambda: keys.create(session, text),
            lambda: jobs.submit(session, judge_id=1, items=[(1, 1)], name=text),
            lambda: jobs.submit(session, judge_id=1, items=[(1, 1)], key=text),
        ):
            with pytest.raises(InvalidError, match="200") as caught:
                add()
            assert caught.value.hint


def test_database_reports_unstorable_values_as_invalid(each_db: Database) -> None:
    for policy, after in (("\udcff", 0), ("p", 2**63)):
        with each_db.read() as session, pytest.raises(InvalidError) as e:
            page_of(session, CompletionRow, policy=policy, after=after)
        assert e.value.hint


def test_submit_rejects_rubric_of_another_prompt(each_db: Database) -> None:
    with each_db.write() as session:
        judge = judges.add(session, Judge(name="j", model="m")).id
        mine, other = (completions.add_prompt(session, Prompt.of(text)).id for text in "ab")
        answer = add_completion(session, Completion(text="x"), mine).id
        foreign = rubrics.add(session, ONE, name="foreign", prompt_id=other).id
        anybodys = rubrics.add(session, TWO, name="anybodys").id
    with pytest.raises(InvalidError, match="foreign@1"), each_db.write() as session:
        jobs.submit(session, judge_id=judge, items=[(answer, anybodys), (answer, foreign)])
    with each_db.write() as session:
        assert page_of(session, JobRow) == []
        assert jobs.submit(session, judge_id=judge, items=[(answer, anybodys)]).status == "queued"


def test_for_prompt_leaves_out_candidates_of_evolutions(db: Database) -> None:
    with db.write() as session:
        prompt_id = completions.add_prompt(session, Prompt.of("a")).id
        best = rubrics.add(session, TWO, name="r", prompt_id=prompt_id, origin="evolved", added_by="ann")
        session.add(EvolutionRow(key="k", rubric_id=best.id))
        rubrics.add(session, ONE, name="evolution-1", prompt_id=prompt_id, origin="api", state="draft")
        assert rubrics.for_prompt(session, prompt_id, allow_drafts=True) == [best]
