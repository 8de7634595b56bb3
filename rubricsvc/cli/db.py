"""`rubricsvc db`: the database schema."""

from __future__ import annotations

from rubricsvc.cli.output import OK, UNAVAILABLE, Json, echo, exit_with, group, show
from rubricsvc.services.database import schema_status, upgrade_schema
from rubricsvc.settings import get_settings

app = group("Database schema.")


@app.command()
def upgrade() -> None:
    """Upgrade the database to the newest schema."""
    before = upgrade_schema(get_settings().database_url)
    changed = "up to date:" if before.up_to_date else f"upgraded from {before.schema or 'nothing'} to"
    echo(f"the schema is {changed} {before.newest}")


@app.command()
def status(as_json: Json = False) -> None:
    """Show the schema version; exit with 3 if it is not the newest."""
    found = schema_status(get_settings().database_url)
    with exit_with(OK if found.up_to_date else UNAVAILABLE):
        show(found, as_json)
        if found.hint:
            echo(f"hint: {found.hint}")
