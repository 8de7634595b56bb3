"""The database of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from rubricsvc import telemetry
from rubricsvc.cli.output import echo
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import migrate
from rubricsvc.store.session import Database


def open_database(settings: Settings) -> Database:
    """Open the database of the settings, and create it if it is an absent or empty SQLite file.

    Any other schema that is not the newest is an error, left to `rubricsvc db upgrade`: its data may be shared.
    """
    db = Database(settings.database_url)
    try:
        if _is_empty_file(db):
            migrate.upgrade(db)  # several first commands may do so at once
            echo(f"created the database {make_url(db.url).database}")
    finally:
        db.close()
    return migrate.open_database(settings.database_url)


def _is_empty_file(db: Database) -> bool:
    try:
        return db.engine.dialect.name == "sqlite" and migrate.is_empty(db)
    except (DBAPIError, UnavailableError, TypeError):  # `migrate.open_database` raises it with a hint
        return False


@contextmanager
def database() -> Iterator[Database]:
    """Open the configured database; new work is published to a broker that other processes use."""
    from rubricsvc.broker import MEMORY, attach

    telemetry.configure("WARNING", human=True)  # to stderr: stdout is for data

    settings = get_settings()
    db = open_database(settings)
    try:
        yield db if settings.broker_url.startswith(MEMORY) else attach(db, settings)
    finally:
        db.close()
