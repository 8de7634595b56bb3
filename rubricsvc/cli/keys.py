"""`rubricsvc keys`: API keys of the service."""

from datetime import timedelta
from typing import Annotated

import typer

from rubricsvc.cli.commands import local_service
from rubricsvc.cli.output import Json, echo, group, print_data, show
from rubricsvc.schemas.base import every_row

app = group("API keys of the service.")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key's user.")],
    expires_in: Annotated[int | None, typer.Option(min=1, max=36500, help="Days until the key expires.")] = None,
) -> None:
    """Create a key and print its secret, once."""
    with local_service() as s:
        key, secret = s.keys.create(name, timedelta(days=expires_in) if expires_in else None)
    echo(f"key {key.id} for {key.name}; the secret is not shown again:")
    print_data(secret)


@app.command("list")
def list_keys(as_json: Json = False) -> None:
    """List keys without their secrets."""
    with local_service() as s:
        show(every_row(s.keys.page), as_json, empty="no keys; create one with `rubricsvc keys create NAME`")


@app.command()
def revoke(key_id: Annotated[int, typer.Argument(help="Id of the key.")]) -> None:
    """Revoke a key, effective immediately."""
    with local_service() as s:
        key = s.keys.revoke(key_id)
    echo(f"revoked key {key.id} ({key.name})")
