"""`rubricsvc keys`: API keys of the service. Only the SHA-256 of a secret is stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from rubricsvc.cli.db import database
from rubricsvc.cli.output import After, Json, Limit, echo, group, print_data, show_list
from rubricsvc.store import keys

app = group("API keys of the service.")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key's user.")],
    expires_in: Annotated[int | None, typer.Option(min=1, max=36500, help="Days until the key expires.")] = None,
) -> None:
    """Create a key and print its secret, once."""
    with database() as db, db.write() as session:
        row, secret = keys.create(session, name, timedelta(days=expires_in) if expires_in else None)
    echo(f"key {row.id} for {row.name}; the secret is not shown again:")
    print_data(secret)


@app.command("list")
def list_(limit: Limit = 50, after: After = 0, as_json: Json = False) -> None:
    """List keys without their secrets."""
    rows: list[dict[str, Any]] = []
    with database() as db, db.read() as session:
        for row in keys.page(session, after=after, limit=limit + 1):
            moments = {name: getattr(row, f"{name}_at") for name in ("created", "last_used", "expires", "revoked")}
            days = {name: moment and f"{moment:%Y-%m-%d}" for name, moment in moments.items()}
            rows.append({"id": row.id, "name": row.name, "key": f"…{row.suffix}", **days})
    show_list(rows[:limit], as_json, empty="no keys; create one with `rubricsvc keys create NAME`")
    if len(rows) > limit:
        echo(f"more rows follow: continue with --after {rows[limit - 1]['id']}, or raise --limit")


@app.command()
def revoke(key_id: Annotated[int, typer.Argument(help="Id of the key.")]) -> None:
    """Revoke a key, effective immediately."""
    with database() as db, db.write() as session:
        row = keys.revoke(session, key_id)
    echo(f"revoked key {row.id} ({row.name})")
