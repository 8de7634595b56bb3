"""The migrations lead to the tables that the code has, and back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from rubricsvc.core.generation import Generation
from rubricsvc.core.judge import Judge
from rubricsvc.core.prompt import Prompt
from rubricsvc.core.rubric import Criterion, Rubric
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.store import generation, items, jobs, migrate, prompts, reviews, rubrics
from rubricsvc.store.session import Database
from rubricsvc.store.tables import Base, ItemRow
from tests.rows import submit_job


def test_migrate_creates_the_schema_of_the_tables(each_db: Database) -> None:
    with each_db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrate_downgrades_and_upgrades(each_db: Database) -> None:
    migrate.downgrade(each_db, "base")
    assert set(inspect(each_db.engine).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(each_db)
    assert migrate.current(each_db) == migrate.head()


def test_migrate_keeps_rubrics_across_the_review(each_db: Database) -> None:
    one, two = (Rubric(criteria=(Criterion(key="a", text=text),)) for text in ("One.", "Two."))
    with each_db.write() as session:
        old = rubrics.add(session, one, name="r").id
        new = rubrics.add(session, two, name="r", state="draft", parent_id=old, added_by="ann")
        reviews.record(session, new, "in_review", by="bob", comment="See c1.")
    migrate.downgrade(each_db, "0005")
    columns = {column["name"] for column in inspect(each_db.engine).get_columns("rubrics")}
    assert not columns & {"state", "parent_id", "added_by"}
    migrate.upgrade(each_db)
    with each_db.write() as session:
        rows = rubrics.of_name(session, "r")
        assert [(row.id, row.value, row.state, row.parent_id, row.added_by) for row in rows] == [
            (old, one, "approved", None, None),
            (new.id, two, "approved", None, None),
        ]
        assert reviews.page(session, [old, new.id]) == []
        with pytest.raises(IntegrityError):
            rubrics.add(session, Rubric(criteria=(Criterion(key="a", text="Three."),)), name="r", parent_id=99)


def test_migrate_upgrades_once_for_concurrent_processes(each_db: Database) -> None:
    migrate.downgrade(each_db, "base")
    faults: list[Exception] = []

    def upgrade() -> None:
        db = Database(each_db.url)
        try:
            migrate.upgrade(db)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            faults.append(error)
        finally:
            db.close()

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert migrate.current(each_db) == migrate.head()


def test_migrate_refuses_a_schema_of_a_newer_version(each_db: Database) -> None:
    with each_db.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for use in (migrate.see_ready, migrate.upgrade):
        with pytest.raises(UnavailableError) as caught:
            use(each_db)
        assert "db upgrade" not in caught.value.hint


def test_open_database_rejects_old_schema_with_hint(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        migrate.open_database(f"sqlite:///{tmp_path / 'empty.db'}")
    assert "db upgrade" in caught.value.hint


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_database_rejects_other_urls(url: str) -> None:
    with pytest.raises(InvalidError):
        Database(url)


def test_open_database_hides_the_password_in_errors() -> None:
    with pytest.raises(UnavailableError) as caught:
        migrate.open_database("postgresql+psycopg://u:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
    assert "doctor" in caught.value.hint


def test_migrate_keeps_jobs_when_items_may_be_prompts(each_db: Database) -> None:
    job = submit_job(each_db, 3, judge=Judge(name="j", model="m"))
    with each_db.write() as session:
        prompt = prompts.add(session, Prompt.of("Why?"))
        generation.submit(session, judge_id=1, prompt_ids=[prompt.id], generation=Generation())
    migrate.downgrade(each_db, "0006")
    columns = {column["name"]: column["nullable"] for column in inspect(each_db.engine).get_columns("items")}
    assert columns["completion_id"] is False and "prompt_id" not in columns
    migrate.upgrade(each_db)
    with each_db.read() as session:
        assert [row.id for row in jobs.page(session)] == [job]
        assert jobs.get(session, job).kind == "score"
        assert [(row.completion_id, row.rubric_id, row.state) for row in items.page(session, job)] == [
            (1, 1, "pending"),
            (2, 1, "pending"),
            (3, 1, "pending"),
        ]
    with pytest.raises(IntegrityError), each_db.write() as session:
        session.add(ItemRow(job_id=job, judge_id=1, completion_id=1, rubric_id=1))
        session.flush()
