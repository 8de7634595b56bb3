"""`rubricsvc db`: the database's schema."""

from __future__ import annotations

from rubricsvc.cli.output import OK, UNAVAILABLE, Json, echo, exit_with, group, show

app = group("The database's schema.")


@app.command()
def upgrade() -> None:
    """Bring the database to the newest schema."""
    from rubricsvc.settings import get_settings
    from rubricsvc.store import migrate
    from rubricsvc.store.session import Database

    db = Database(get_settings().database_url)
    try:
        before, newest = migrate.current(db), migrate.head()
        migrate.upgrade(db)
    finally:
        db.close()
    echo(f"is at {newest} already" if before == newest else f"upgraded from {before or 'nothing'} to {newest}")


@app.command()
def status(as_json: Json = False) -> None:
    """Show the schema; ends with 3 if it is not the newest."""
    from sqlalchemy import make_url

    from rubricsvc.settings import get_settings
    from rubricsvc.store import migrate
    from rubricsvc.store.session import Database, sqlite_file

    db = Database(get_settings().database_url)
    file = sqlite_file(db.url)
    nothing = file is not None and not file.exists()
    try:  # a SQLite file is made by looking into it
        found, newest = None if nothing else migrate.current(db), migrate.head()
    finally:
        db.close()
    shown = make_url(db.url).render_as_string()
    with exit_with(OK if found == newest else UNAVAILABLE):
        show({"database": shown, "schema": found, "newest": newest, "up_to_date": found == newest}, as_json)
        if found != newest:
            echo("hint: run `rubricsvc db upgrade`")
