"""The migrations lead to the tables that the code has, and back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.store import budgets, jobs, migrate
from rubricsvc.store.session import Database
from rubricsvc.store.tables import Base
from tests.rows import submit_job
from tests.unit.rubricsvc.store.test_jobs import JUDGE, record_two


def test_schema_is_what_the_tables_say(each_db: Database) -> None:
    with each_db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_down_and_up_again(each_db: Database) -> None:
    migrate.downgrade(each_db, "base")
    assert set(inspect(each_db.engine).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(each_db)
    assert migrate.current(each_db) == migrate.head()


def test_verdicts_of_old_jobs_are_counted(each_db: Database) -> None:
    job = submit_job(each_db, 2, judge=JUDGE)
    record_two(each_db)
    with each_db.read() as session:
        before = jobs.progress(session, job)
    migrate.downgrade(each_db, "0001")
    migrate.upgrade(each_db)
    with each_db.read() as session:
        assert jobs.progress(session, job) == before
    assert (before.verdicts, before.failed_verdicts) == (6, 1)


def test_what_nobody_known_had_reserved_is_lost(each_db: Database) -> None:
    job = submit_job(each_db, 2, judge=JUDGE)
    migrate.downgrade(each_db, "0006")
    with each_db.engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET budget = 1, reserved = 0.5"))
    migrate.upgrade(each_db)
    with each_db.write() as session:
        assert budgets.orphaned(session) == [job]
        assert budgets.close(session, job) == 0.5
        budgets.book(session, job, "w", spent=0.25, held=0.125)
        assert jobs.get(session, job).spent == 0.75
    migrate.downgrade(each_db, "0006")
    with each_db.engine.connect() as connection:
        assert connection.execute(text("SELECT spent, reserved FROM jobs")).one() == (0.75, 0.125)


def test_two_processes_may_upgrade_at_once(each_db: Database) -> None:
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


def test_an_old_schema_is_refused_with_the_mending(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        migrate.open_database(f"sqlite:///{tmp_path / 'empty.db'}")
    assert "db upgrade" in caught.value.hint


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        Database(url)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(UnavailableError) as caught:
        migrate.open_database("postgresql+psycopg://u:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)
    assert "doctor" in caught.value.hint
