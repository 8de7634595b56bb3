"""`rubricsvc db`: the database schema; `rubricsvc doctor` checks it."""

from __future__ import annotations

from rubricsvc.cli.output import echo, group
from rubricsvc.services.database import upgrade_schema
from rubricsvc.settings import get_settings

app = group("Database schema.")


@app.command()
def upgrade() -> None:
    """Upgrade the database to the newest schema."""
    before, newest = upgrade_schema(get_settings().database_url)
    changed = "up to date:" if before == newest else f"upgraded from {before or 'nothing'} to"
    echo(f"the schema is {changed} {newest}")
