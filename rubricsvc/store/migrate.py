"""Alembic, driven from code: the migrations are found beside the installed package, never by the current directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, make_url, text
from sqlalchemy.exc import DBAPIError

from rubricsvc.errors import UnavailableError
from rubricsvc.store.session import Database, sqlite_file

LOCK = 7_215_411_903
"""The PostgreSQL advisory lock of a migrating process: an arbitrary number."""

_MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


def config() -> Config:
    """Return Alembic's configuration."""
    settings = Config()
    settings.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings


@cache
def revisions() -> tuple[str, ...]:
    """Return the revisions that this version knows, the newest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(config()).walk_revisions())


def current(db: Database) -> str | None:
    """Return the revision of the database; None for an empty one."""
    with db.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(db: Database, revision: str = "head") -> None:
    """Bring the schema to ``revision``. Several processes may call it at once; the second finds nothing to do.

    On PostgreSQL a process waits for another that migrates as long as that takes. Then each of its statements may take
    60 s and wait 5 s for a lock: better to fail and be called again than to hold up the service behind a lock queue.
    """
    settings = config()
    _reject_newer(current(db))
    with db.engine.connect().execution_options(rubricsvc_immediate=True) as connection, connection.begin():
        if db.engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
            connection.execute(text("SET LOCAL statement_timeout = '60s'"))
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        settings.attributes["connection"] = connection
        command.upgrade(settings, revision)


def open_database(url: str, on_created: Callable[[str], None] | None = None) -> Database:
    """Return a database that is ready for use.

    With ``on_created``, which is called with its name, an absent or empty SQLite file is created.
    """
    db = Database(url)
    try:
        with suppress(DBAPIError, UnavailableError, TypeError):  # which `see_ready` raises with a hint
            if on_created is not None and sqlite_file(url) is not None and not inspect(db.engine).get_table_names():
                upgrade(db)  # several first commands may do so at once
                on_created(str(make_url(url).database))
        see_ready(db)
    except BaseException:
        db.close()
        raise
    return db


def see_ready(db: Database) -> None:
    """Raise UnavailableError if the database cannot be reached, or its schema is not the newest."""
    try:
        found = current(db)
    except (DBAPIError, TypeError) as error:  # TypeError: an option of the URL is unknown to the driver
        raise UnavailableError(
            f"the database {make_url(db.url).render_as_string()} cannot be opened: {getattr(error, 'orig', error)}",
            hint="check RUBRICSVC_DATABASE_URL, the server and the free disk space, or run `rubricsvc doctor`",
        ) from error
    _reject_newer(found)
    if found != revisions()[0]:
        raise UnavailableError(
            f"the database is at schema {found or 'none'}, this version needs {revisions()[0]}",
            hint="run `rubricsvc db upgrade`",
        )


def _reject_newer(found: str | None) -> None:
    """Raise UnavailableError if no migration leads to this revision."""
    if found is not None and found not in revisions():
        raise UnavailableError(
            f"the database is at schema {found}, which is unknown to this version (its newest is {revisions()[0]})",
            hint="a newer rubricsvc has upgraded it: install that version or a later one",
        )
