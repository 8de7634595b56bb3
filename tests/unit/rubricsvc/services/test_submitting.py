"""Which completions a job scores, and its submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricsvc.core.judge import Judge
from rubricsvc.errors import InvalidError, NotFoundError
from rubricsvc.formats import InputFile
from rubricsvc.services.importing import ImportResult, import_file
from rubricsvc.services.reviewing import review
from rubricsvc.services.submitting import select, submit
from rubricsvc.store import jobs, judges
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
        assert select(session, source)[:2] == ([(1, 1), (2, 1)], 1)
        assert select(session, source, policy="q")[:2] == ([(2, 1)], 0)
        assert select(session, source, limit=1)[:2] == ([(1, 1)], 0)
        assert select(session, source, rubric="one")[:2] == ([(1, 1), (2, 1)], 1)


def test_select_says_why_no_completion_has_a_rubric(db: Database, imported: ImportResult, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("{id: two, prompt: Two?, criteria: [b]}")
    with db.write() as session:
        (two,) = import_file(session, InputFile(tmp_path / "other.yaml")).rubrics
        with pytest.raises(InvalidError) as elsewhere:
            select(session, imported, rubric="two", policy="p")
        review(session, "one", "retire", by="ann")
        with pytest.raises(InvalidError) as retired:
            select(session, imported, policy="p")
    assert "prompt 'two'" in elsewhere.value.message and two in elsewhere.value.message
    assert "one@1" in retired.value.message and "one@1" in retired.value.hint


def test_submit_gives_the_same_job_again(db: Database, imported: ImportResult) -> None:
    with db.write() as session:
        judges.add(session, Judge(name="j", model="m"))
    found = []
    for name in ("first", "again"):
        with db.write() as session:
            found.append(submit(session, "j", imported, name=name))
    assert [(one.job_id, one.is_new, one.warning) for one in found] == [(1, True, None), (1, False, None)]
    assert found[0].no_rubric == 1
    with db.read() as session:
        assert jobs.get(session, 1).name == "first"


def test_submit_warns_of_required_criteria_of_a_comparative_judge(db: Database, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("{prompt: P?, criteria: [{text: a, required: true}], completions: [x]}")
    with db.write() as session:
        judges.add(session, Judge(name="j", model="m", mode="comparative"))
        import_file(session, InputFile(tmp_path / "file.yaml"))
        assert "c1" in (submit(session, "j").warning or "")
        with pytest.raises(NotFoundError):
            submit(session, "none")
