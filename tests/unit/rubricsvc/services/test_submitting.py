"""Which completions a job scores, and its submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import InputFile
from rubricsvc.schemas import NewItem, NewJob
from rubricsvc.services.importing import ImportResult, import_file
from rubricsvc.services.jobs import Jobs, select
from rubricsvc.services.rubrics import Rubrics
from rubricsvc.store import judges
from rubricsvc.store.session import Database

FILE = """\
- {id: one, prompt: One?, criteria: [a], completions: [{text: x, policy: p}, {text: y, policy: q}]}
- {prompt: Two?, completions: [z]}
"""


@pytest.fixture
def imported(db: Database, tmp_path: Path) -> ImportResult:
    (tmp_path / "file.yaml").write_text(FILE)
    with db.write() as session:
        return import_file(session, InputFile(tmp_path / "file.yaml"))


@pytest.mark.parametrize("from_import", [True, False])
def test_select_pairs_completions_with_the_rubrics_of_their_prompt(
    db: Database, imported: ImportResult, from_import: bool
) -> None:
    source = imported if from_import else None
    with db.read() as session:
        assert select(session, NewJob(judge="j"), source)[:2] == ([(1, 1), (2, 1)], 1)
        assert select(session, NewJob(judge="j", policy="q"), source)[:2] == ([(2, 1)], 0)
        assert select(session, NewJob(judge="j", limit=1), source)[:2] == ([(1, 1)], 0)
        assert select(session, NewJob(judge="j", rubric="one"), source)[:2] == ([(1, 1), (2, 1)], 1)


def test_select_raises_if_nothing_is_selected(db: Database, imported: ImportResult) -> None:
    with db.read() as session:
        with pytest.raises(InvalidError):
            select(session, NewJob(judge="j", policy="none"), imported)
        with pytest.raises(NotFoundError):
            select(session, NewJob(judge="j", rubric="none"), imported)


def test_select_says_why_no_completion_has_a_rubric(db: Database, imported: ImportResult, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("{id: two, prompt: Two?, criteria: [b]}")
    with db.write() as session:
        (two,) = import_file(session, InputFile(tmp_path / "other.yaml")).rubrics
        with pytest.raises(InvalidError) as elsewhere:
            select(session, NewJob(judge="j", rubric="two", policy="p"), imported)
    Rubrics(db).review("one", action="retire")
    with db.read() as session, pytest.raises(InvalidError) as retired:
        select(session, NewJob(judge="j", policy="p"), imported)
    assert "prompt 'two'" in elsewhere.value.message and two in elsewhere.value.message
    assert "one@1" in retired.value.message and "one@1" in retired.value.hint


def test_submit_warns_of_required_criteria_of_a_comparative_judge(db: Database, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("{prompt: P?, criteria: [{text: a, required: true}], completions: [x]}")
    with db.write() as session:
        judges.add(session, Judge(name="j", model="m", mode="comparative"))
        import_file(session, InputFile(tmp_path / "file.yaml"))
    assert ["c1" in note for note in Jobs(db).submit(judge="j").notes] == [True]
    with pytest.raises(NotFoundError):
        Jobs(db).submit(judge="none")
    with pytest.raises(InvalidError):
        Jobs(db).submit(judge="j", policy="p", items=(NewItem(completion_id=1, rubric=None),))
