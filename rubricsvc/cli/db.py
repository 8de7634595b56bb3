"""`rubricsvc db`: the database schema; and the database of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from rubricsvc import telemetry
from rubricsvc.cli.output import OK, UNAVAILABLE, Json, echo, exit_with, group, show
from rubricsvc.errors import UnavailableError
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import migrate
from rubricsvc.store.session import Database, sqlite_file

app = group("Database schema.")


@app.command()
def upgrade() -> None:
    """Upgrade the database to the newest schema."""
    with closing(Database(get_settings().database_url)) as db:
        before, newest = migrate.current(db), migrate.head()
        migrate.upgrade(db)
    changed = f"upgraded from {before or 'nothing'} to" if before != newest else "up to date:"
    echo(f"the schema is {changed} {newest}")


@app.command()
def status(as_json: Json = False) -> None:
    """Show the schema version; exit with 3 if it is not the newest."""
    with closing(Database(get_settings().database_url)) as db:
        file = sqlite_file(db.url)
        absent = file is not None and not file.exists()  # reading an absent SQLite file would create it
        schema, newest = None if absent else migrate.current(db), migrate.head()
    url = make_url(db.url).render_as_string()
    with exit_with(OK if schema == newest else UNAVAILABLE):
        show({"database": url, "schema": schema, "newest": newest, "up_to_date": schema == newest}, as_json)
        if schema is not None and not migrate.is_known(schema):
            echo("hint: a newer rubricsvc has upgraded it; install that version or a later one")
        elif schema != newest:
            echo("hint: run `rubricsvc db upgrade`")


def open_database(settings: Settings) -> Database:
    """Open the database of the settings, and create it if it is an absent or empty SQLite file.

    Any other schema that is not the newest is an error, left to `rubricsvc db upgrade`: its data may be shared.
    """
    unusable = (DBAPIError, UnavailableError, TypeError)  # `migrate.open_database` raises it with a hint
    with closing(Database(settings.database_url)) as db, suppress(*unusable):
        if db.engine.dialect.name == "sqlite" and migrate.is_empty(db):
            migrate.upgrade(db)  # several first commands may do so at once
            echo(f"created the database {make_url(db.url).database}")
    return migrate.open_database(settings.database_url)


@contextmanager
def database() -> Iterator[Database]:
    """Open the configured database; new work is published to a broker that other processes use."""
    from rubricsvc.broker import MEMORY, attach

    telemetry.configure("WARNING", human=True)  # to stderr: stdout is for data
    settings = get_settings()
    with closing(open_database(settings)) as db:
        yield db if settings.broker_url.startswith(MEMORY) else attach(db, settings)
