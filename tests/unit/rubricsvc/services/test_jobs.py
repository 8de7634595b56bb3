"""Which completions a job scores, its submission, the wait for it and its export."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from rubricsvc.core.judge import Judge, Sampling
from rubricsvc.core.verdict import Reason
from rubricsvc.errors import InvalidError, NotFoundError, UnavailableError
from rubricsvc.schemas.jobs import NewItem, NewJob, StoredJob
from rubricsvc.services import job_results
from rubricsvc.services.importing import Imports
from rubricsvc.services.jobs import FIXES, Jobs, failure_hints, select
from rubricsvc.services.local import LocalService
from rubricsvc.settings import get_settings
from rubricsvc.store import jobs, judges
from rubricsvc.store.session import Database
from tests.rows import record_values, submit_job

FILE = """\
- {id: one, prompt: One?, criteria: [a], completions: [{text: x, policy: p}, {text: y, policy: q}]}
- {prompt: Two?, completions: [z]}
"""


@pytest.fixture
def imported(db: Database, tmp_path: Path) -> Any:
    """The completions of a file, as the field of a new job."""
    (tmp_path / "file.yaml").write_text(FILE)
    return tuple(Imports(db).create(tmp_path / "file.yaml").completion_ids)


@pytest.mark.parametrize("from_import", [True, False])
def test_select_pairs_completions_with_the_rubrics_of_their_prompt(
    db: Database, imported: Any, from_import: bool
) -> None:
    fields: dict[str, Any] = {"judge": "j", "completions": imported if from_import else None}
    with db.read() as session:
        assert select(session, NewJob(**fields)) == ([(1, 1), (2, 1)], 1)
        assert select(session, NewJob(**fields, policy="q")) == ([(2, 1)], 0)
        assert select(session, NewJob(**fields, limit=1)) == ([(1, 1)], 0)
        assert select(session, NewJob(**fields, rubric="one")) == ([(1, 1), (2, 1)], 1)


def test_select_takes_the_rubric_that_a_completion_names(db: Database, imported: Any, tmp_path: Path) -> None:
    text = "[{name: any, criteria: [c]}, {prompt: One?, rubric: any, completions: [{text: x, policy: p}, w]}]"
    (tmp_path / "any.yaml").write_text(text)
    done = Imports(db).create(tmp_path / "any.yaml")
    (known, new), rubric_ids = done.completion_ids, done.completion_rubric_ids
    assert (known, rubric_ids) == (1, [2, 2])
    pairs: Any = (*zip((known, new), rubric_ids, strict=True), *imported)
    with db.read() as session:
        assert sorted(select(session, NewJob(judge="j", completions=pairs))[0]) == [(1, 1), (1, 2), (2, 1), (new, 2)]
        with pytest.raises(NotFoundError):
            select(session, NewJob(judge="j", completions=(*pairs, 99)))


def test_select_says_why_no_completion_has_a_rubric(db: Database, imported: Any, tmp_path: Path) -> None:
    with db.read() as session:
        for completions in (imported, None):
            with pytest.raises(InvalidError, match="'none'"):
                select(session, NewJob(judge="j", policy="none", completions=completions))
            with pytest.raises(NotFoundError, match="'none'"):
                select(session, NewJob(judge="j", rubric="none", completions=completions))
    (tmp_path / "other.yaml").write_text("{id: two, prompt: Two?, criteria: [b]}")
    (two,) = Imports(db).create(tmp_path / "other.yaml").rubrics
    with db.read() as session, pytest.raises(InvalidError) as elsewhere:
        select(session, NewJob(judge="j", rubric="two", policy="p", completions=imported))
    assert "prompt 'two'" in elsewhere.value.message and two in elsewhere.value.message


def test_submit_warns_of_required_criteria_of_a_comparative_judge(db: Database, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("{prompt: P?, criteria: [{text: a, required: true}], completions: [x]}")
    with db.write() as session:
        judges.add(session, Judge(name="j", model="m", mode="comparative"))
    Imports(db).create(tmp_path / "file.yaml")
    assert ["c1" in note for note in Jobs(db).submit(judge="j").notes] == [True]
    with pytest.raises(NotFoundError, match="'none'"):
        Jobs(db).submit(judge="none")
    with pytest.raises(InvalidError):
        Jobs(db).submit(judge="j", policy="p", items=(NewItem(completion_id=1, rubric=None),))


SEEDED = {"mode": "written", "sampling": Sampling(temperature=0.7, seed=1)}
UNSEEDED = {"mode": "written", "sampling": Sampling(temperature=0.7, seed=None)}


def test_failure_hints_keep_what_would_fail_again_apart() -> None:
    for reason, fields, again in [
        ("unavailable", {}, True), ("no_answer", {}, False), ("engine_error", {}, False),
        ("unparseable", SEEDED, False), ("unparseable", UNSEEDED, True),
        ("template_copied", {"mode": "written"}, False), ("too_long", UNSEEDED, False), ("refused", UNSEEDED, False),
    ]:  # fmt: skip
        judge = Judge(name="j", model="m", **fields)
        hints = "\n".join(failure_hints({reason: 3}, judge, 7))
        assert ("jobs retry 7` asks again" in hints) == again
        assert (f"{reason} ×3 would fail again" in hints) == (not again)


def test_fixes_cover_every_reason_without_placeholders() -> None:
    assert set(FIXES) == set(Reason) and not any(set("{}") & set(fix) for fix in FIXES.values())


JUDGE = Judge(name="test", model="m")


def test_wait_reports_progress_until_the_end(db: Database) -> None:
    job_id, seen = submit_job(db, 2, judge=JUDGE), []

    def on_progress(job: StoredJob) -> None:
        assert job.progress is not None
        seen.append((job.progress.pending, job.progress.cancelled))
        with db.write() as session:
            jobs.cancel(session, job_id)

    assert Jobs(db).wait(job_id, None, on_progress).status == "cancelled"
    assert seen == [(2, 0), (0, 2)]


def test_wait_ends_after_its_timeout(db: Database) -> None:
    with pytest.raises(TimeoutError, match="No worker is running"):
        Jobs(db).wait(submit_job(db, 1, judge=JUDGE), 0.05)


@pytest.mark.parametrize(("limit", "notes"), [(60.0, 2), (0.0, 0)])
def test_wait_retries_the_database_for_a_while(
    db: Database, monkeypatch: pytest.MonkeyPatch, limit: float, notes: int
) -> None:
    monkeypatch.setattr("rubricsvc.services.jobs.POLL_SECONDS", 0.0)
    monkeypatch.setattr(get_settings(), "outage_seconds", limit)
    job, read, answers = submit_job(db, 1, judge=JUDGE), db.read, iter([False, False, True])
    db.note_outage(OperationalError("INSERT", {}, Exception("disk is full")))  # in a worker of this process
    if limit == 0:
        with pytest.raises(UnavailableError, match="disk is full"):
            Jobs(db).wait(job)
    with db.write() as session:
        jobs.cancel(session, job)

    def read_later() -> AbstractContextManager[Session]:
        if next(answers):
            return read()
        raise OperationalError("SELECT", {}, ConnectionError("gone"))

    monkeypatch.setattr(db, "read", read_later)
    messages: list[str] = []
    if limit > 0:
        assert Jobs(db).wait(job, None, None, messages.append).status == "cancelled"
    else:
        with pytest.raises(UnavailableError, match="gone"):
            Jobs(db).wait(job, None, None, messages.append)
    assert len(messages) == notes


@pytest.fixture(params=[1, 100])
def job(db: Database, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """A job over four completions: rewards 0, 0.5 and 0.5, and a failed one. Read in pages of one, and in one page."""
    monkeypatch.setattr(job_results, "ITEMS_PER_PAGE", request.param)
    job_id = submit_job(db, 4, judge=JUDGE)
    record_values(db, (0.0, 0.5, 0.5, None))
    return job_id


def test_result_rows_have_texts_and_contributions(db: Database, job: int) -> None:
    rows = [row for after in (0, 3) for row in LocalService(db).jobs.export(job, after=after, limit=3).rows]
    assert [row["reward"] for row in rows] == [0.0, 0.5, 0.5, None]
    assert [row["completion_id"] for row in rows] == [1, 2, 3, 4]
    assert {(row["rubric"], row["judge"], row["prompt"]) for row in rows} == {("test@1", "test", "What is a rubric?")}
    assert rows[1]["completion"] == "answer 1" and rows[1]["completion_messages"] is None
    verdicts = rows[1]["verdicts"]
    assert [(one["criterion"], one["text"], one["weight"], one["kind"]) for one in verdicts] == [
        (f"c{n}", f"Says thing number {n}.", n, "judged") for n in (1, 2, 3)
    ]
    assert sum(one["contribution"] for one in verdicts) == pytest.approx(0.5)
    assert [one["gain"] for one in verdicts] == pytest.approx([1 / 12, 2 / 12, 3 / 12])
    assert rows[3]["verdicts"][0]["contribution"] is None
