"""The migrations lead to the tables that the code has, and back."""

import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

import rubricsvc.store.tables  # noqa: F401 - declares them
from rubricsvc.errors import InvalidError, UnavailableError
from rubricsvc.store import session
from rubricsvc.store.session import Database
from rubricsvc.store.tables import Base
from tests.databases import downgrade


def test_migrate_creates_the_schema_of_the_tables(each_db: Database) -> None:
    with each_db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrate_downgrades_and_upgrades(each_db: Database) -> None:
    downgrade(each_db, "base")
    assert set(inspect(each_db.engine).get_table_names()) <= {"alembic_version"}
    downgrade(each_db, "0003", command.upgrade)
    add = text("INSERT INTO keys (name, digest, suffix, created_at) VALUES ('k', 'd', 's', '2026-01-01') RETURNING id")
    with each_db.write() as before:
        first = before.execute(add).scalar_one()
    session.upgrade(each_db)
    assert session.current_revision(each_db) == session.revisions()[0]
    with each_db.write() as after:
        after.execute(text("DELETE FROM keys"))
        assert after.execute(add).scalar_one() > first, "ids of rows from before are not given again"


def test_migrate_upgrades_once_for_concurrent_processes(each_db: Database) -> None:
    downgrade(each_db, "base")
    faults: list[Exception] = []

    def upgrade() -> None:
        db = Database(each_db.url)
        try:
            session.upgrade(db)
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
    assert session.current_revision(each_db) == session.revisions()[0]


def test_migrate_refuses_a_schema_of_a_newer_version(each_db: Database) -> None:
    with each_db.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for use in (session.see_ready, session.upgrade):
        with pytest.raises(UnavailableError) as caught:
            use(each_db)
        assert "db upgrade" not in caught.value.hint


def test_see_ready_rejects_old_schema_with_hint(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        session.see_ready(Database(f"sqlite:///{tmp_path / 'empty.db'}"))
    assert "db upgrade" in caught.value.hint


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_database_rejects_other_urls(url: str) -> None:
    with pytest.raises(InvalidError):
        Database(url)


def test_see_ready_hides_the_password_in_errors() -> None:
    with pytest.raises(UnavailableError) as caught:
        session.see_ready(Database("postgresql+psycopg://u:secret@127.0.0.1:1/x"))
    assert "secret" not in str(caught.value) and "doctor" in caught.value.hint


def test_write_to_a_read_only_database_may_succeed_later(each_db: Database) -> None:
    """A standby may become the primary: workers try again, and commands tell of a database that is unavailable."""
    postgres = each_db.engine.dialect.name == "postgresql"
    with pytest.raises(session.AWAY, match=r"read-?only"), each_db.write() as writing:
        writing.execute(text("SET TRANSACTION READ ONLY" if postgres else "PRAGMA query_only = ON"))
        writing.execute(text("DELETE FROM outbox"))
