"""What a name stands for."""

from __future__ import annotations

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import ConflictError, InvalidError, NotFoundError
from rubricsvc.store import judges, prompts, rubrics
from rubricsvc.store.session import Database

ONE = Rubric(criteria=(Criterion(key="a", text="One."),))
TWO = Rubric(criteria=(Criterion(key="a", text="Two."),))


def test_a_number_is_an_id_and_never_a_judges_name(db: Database) -> None:
    with db.write() as session:
        row = judges.add(session, Judge(name="j", model="m"))
        with pytest.raises(InvalidError, match="cannot name a judge"):
            judges.add(session, Judge(name="1", model="other"))
        assert judges.get(session, row.id).id == judges.get(session, "j").id == row.id
        with pytest.raises(NotFoundError):
            judges.get(session, "k")


def test_a_judges_name_stands_for_one_judge(db: Database) -> None:
    with db.write() as session:
        judges.add(session, Judge(name="j", model="m"))
        with pytest.raises(ConflictError):
            judges.add(session, Judge(name="j", model="n"))


def test_versions_count_and_identical_content_is_the_same(each_db: Database) -> None:
    with each_db.write() as session:
        first, same, second = (rubrics.add(session, rubric, name="r") for rubric in (ONE, ONE, TWO))
        assert (first.id, first.version, second.version) == (same.id, 1, 2)
        assert rubrics.get(session, "r").id == second.id
        assert rubrics.get(session, "r@1").id == first.id
        assert rubrics.get(session, ONE.digest[:12]).id == first.id


def test_a_prompt_is_found_by_each_id_that_it_came_with(each_db: Database) -> None:
    with each_db.write() as session:
        ids = {prompts.add(session, Prompt.of("Why?"), name).id for name in ("a", "b", "b", None, "a", "c")}
        other = prompts.add(session, Prompt.of("How?"), "d").id
        prompts.add(session, Prompt.of("Why?"), "d")
        (id_,) = ids
        assert {prompts.get(session, name).id for name in "abc"} == ids
        assert prompts.get(session, id_).external_id == "a"
        assert prompts.get(session, "d").id == other


def test_a_prompts_rubric_is_not_superseded_by_another_prompts(db: Database) -> None:
    with db.write() as session:
        a, b = (prompts.add(session, Prompt.of(text)).id for text in "ab")
        mine = rubrics.add(session, ONE, name="r", prompt_id=a)
        rubrics.add(session, TWO, name="r", prompt_id=b)
        assert [row.id for row in rubrics.for_prompt(session, a)] == [mine.id]
        with pytest.raises(ConflictError, match="another prompt"):
            rubrics.add(session, ONE, name="r", prompt_id=b)
