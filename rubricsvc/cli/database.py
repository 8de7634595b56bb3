"""The database, as the commands open it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rubricsvc.cli.output import echo

if TYPE_CHECKING:
    from rubricsvc.settings import Settings
    from rubricsvc.store.session import Database


def open_database(settings: Settings) -> Database:
    """The database of the settings. A SQLite file that is not there yet, or has nothing in it, is made; anything
    else that is not at the newest schema may be shared or precious, and is left to `rubricsvc db upgrade`.

    Raises:
        UnavailableError: it cannot be reached, or its schema is not the newest.
    """
    from sqlalchemy import make_url

    from rubricsvc.store import migrate
    from rubricsvc.store.session import Database

    db = Database(settings.database_url)  # refuses what is no database URL
    try:
        if _is_empty_file(db):
            migrate.upgrade(db)  # several first commands may do so at once
            echo(f"made a new database: {make_url(db.url).database}")
    finally:
        db.close()
    return migrate.open_database(settings.database_url)


def _is_empty_file(db: Database) -> bool:
    """Whether it is a SQLite file without a table: new, or left by a command that was stopped before it made them."""
    from sqlalchemy.exc import DBAPIError

    from rubricsvc.errors import UnavailableError
    from rubricsvc.store import migrate

    try:
        return db.engine.dialect.name == "sqlite" and migrate.is_empty(db)
    except (DBAPIError, UnavailableError, TypeError):  # `open_database` tells why
        return False


@contextmanager
def database() -> Iterator[Database]:
    """The configured database for the length of a command; a broker that others listen to is told of new work."""
    from rubricsvc import telemetry
    from rubricsvc.broker import MEMORY, attach
    from rubricsvc.settings import get_settings

    telemetry.configure("WARNING", human=True)  # to stderr: stdout is for data

    settings = get_settings()
    db = open_database(settings)
    try:
        yield db if settings.broker_url.startswith(MEMORY) else attach(db, settings)
    finally:
        db.close()
