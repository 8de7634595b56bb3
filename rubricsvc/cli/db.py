"""`rubricsvc db`: the database schema."""

from __future__ import annotations

from sqlalchemy import make_url

from rubricsvc.cli.output import OK, UNAVAILABLE, Json, echo, exit_with, group, show
from rubricsvc.settings import get_settings
from rubricsvc.store import migrate
from rubricsvc.store.session import Database, sqlite_file

app = group("Database schema.")


@app.command()
def upgrade() -> None:
    """Upgrade the database to the newest schema."""
    db = Database(get_settings().database_url)
    try:
        before, newest = migrate.current(db), migrate.head()
        migrate.upgrade(db)
    finally:
        db.close()
    changed = f"upgraded from {before or 'nothing'} to" if before != newest else "up to date:"
    echo(f"the schema is {changed} {newest}")


@app.command()
def status(as_json: Json = False) -> None:
    """Show the schema version; exit with 3 if it is not the newest."""
    db = Database(get_settings().database_url)
    file = sqlite_file(db.url)
    absent = file is not None and not file.exists()
    try:  # reading an absent SQLite file would create it
        schema, newest = None if absent else migrate.current(db), migrate.head()
    finally:
        db.close()
    url = make_url(db.url).render_as_string()
    with exit_with(OK if schema == newest else UNAVAILABLE):
        show({"database": url, "schema": schema, "newest": newest, "up_to_date": schema == newest}, as_json)
        if schema != newest:
            echo("hint: run `rubricsvc db upgrade`")
