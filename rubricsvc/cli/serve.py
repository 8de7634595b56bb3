"""Running the service: `serve`, the HTTP API with a worker for ``memory://``; `worker` and `db`."""

from __future__ import annotations

import signal
import socket
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

import structlog
import typer

from rubricsvc import telemetry
from rubricsvc.cli.commands import require_database
from rubricsvc.cli.output import echo, group
from rubricsvc.errors import InvalidError
from rubricsvc.services.local import open_database, upgrade_schema
from rubricsvc.settings import get_settings

if TYPE_CHECKING:
    import uvicorn

log = structlog.get_logger("rubricsvc.serve")

db = group("Database schema.")


def serve(
    host: Annotated[
        str | None,
        typer.Option(help="Address; other than loopback needs keys.", show_default="RUBRICSVC_HOST, else 127.0.0.1"),
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, show_default="RUBRICSVC_PORT, else 8321")] = None,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Score in this process too.")] = True,
) -> None:
    """Serve the HTTP API until stopped. The database is created on first use."""
    import uvicorn

    from rubricsvc.api.app import create_app
    from rubricsvc.api.auth import is_loopback, needs_key
    from rubricsvc.broker import MEMORY
    from workers.queue.app import embedded_worker

    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = get_settings().model_copy(update=given)
    telemetry.configure(settings.log_level)
    listen(settings.host, settings.port).close()
    with open_database(lambda name: echo(f"created the database {name}"), settings) as opened:
        if not needs_key(settings) and not is_loopback(settings.host):
            log.warning("the service is open to other machines without API keys", hint="unset RUBRICSVC_REQUIRE_KEY")
        app = create_app(settings, opened)
        address = settings.host, settings.port
        config = uvicorn.Config(app, *address, log_config=None, access_log=False, proxy_headers=False)
        config.timeout_graceful_shutdown = 5
        embedded = settings.broker_url.startswith(MEMORY)
        if not embedded:
            log.info("this process does not score", hint="start workers with `rubricsvc worker`")
        with embedded_worker(settings, opened) if embedded and worker else nullcontext():
            run_server(config)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; with port 0 at a free one."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        hint = "choose another --port or --host"
        raise InvalidError(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint) from None


def run_server(config: uvicorn.Config, *sockets: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, at the address of the configuration or on sockets that listen, and return."""
    import uvicorn

    # uvicorn raises the signal again after its shutdown, when the worker still has to stop
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        uvicorn.Server(config).run(list(sockets) or None)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait


def worker(
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Judges scored for at once.")] = 2,
    pool: Annotated[
        Literal["threads", "prefork", "solo"],
        typer.Option(help="threads share a local model; prefork uses more cores; solo is sequential."),
    ] = "threads",
) -> None:
    """Score submitted jobs until stopped. Needs Redis or RabbitMQ as broker."""
    from celery.signals import setup_logging

    from rubricsvc.broker import MEMORY, check_broker

    settings = get_settings()
    if settings.broker_url.startswith(MEMORY):
        hint = "set RUBRICSVC_BROKER_URL=redis://… or amqp://…, or score with `rubricsvc serve`"
        raise InvalidError("the broker memory:// works within one process only", hint=hint)
    from workers.queue.app import make_app, with_worker_threads
    from workers.queue.drain import NAME

    telemetry.configure(settings.log_level)
    setup_logging.connect(lambda **_: None, weak=False)  # keeps Celery from configuring logging
    with open_database(settings=settings):
        pass  # its errors belong to the terminal
    check_broker(settings.broker_url)
    app = with_worker_threads(make_app(settings), settings)
    node = f"{NAME.replace(':', '-')}@{socket.gethostname()}"  # RabbitMQ refuses a second worker of one name
    process = app.Worker(hostname=node, pool=pool, concurrency=concurrency, without_gossip=True, without_mingle=True)
    process.start()
    raise typer.Exit(process.exitcode or 0)


@db.command()
def upgrade() -> None:
    """Upgrade the database to the newest schema."""
    require_database()
    before, newest = upgrade_schema(get_settings().database_url)
    changed = "up to date:" if before == newest else f"upgraded from {before or 'nothing'} to"
    echo(f"the schema is {changed} {newest}")
