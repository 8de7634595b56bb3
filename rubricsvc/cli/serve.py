"""`rubricsvc serve`: the HTTP API, with a worker in the same process for ``memory://``."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from rubricsvc import telemetry
from rubricsvc.cli.db import open_database
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store.session import Database

if TYPE_CHECKING:
    import uvicorn

log = structlog.get_logger("rubricsvc.serve")


def serve(
    host: Annotated[
        str | None,
        typer.Option(help="Address; other than loopback needs keys.", show_default="RUBRICSVC_HOST, else 127.0.0.1"),
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, show_default="RUBRICSVC_PORT, else 8321")] = None,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Score in this process too.")] = True,
) -> None:
    """Serve the HTTP API until stopped. The database is created on first use."""
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = get_settings().model_copy(update=given)
    telemetry.configure(settings.log_level)
    with closing(open_database(settings)) as db:
        _serve(settings, db, worker=worker)


def _serve(settings: Settings, db: Database, *, worker: bool) -> None:
    import uvicorn

    from rubricsvc.api.app import create_app
    from rubricsvc.api.auth import is_loopback, needs_key
    from rubricsvc.api.request import Validators
    from rubricsvc.broker import MEMORY, attach
    from workers import checks, judges

    if not needs_key(settings) and not is_loopback(settings.host):
        log.warning("the service is open to other machines without API keys", hint="unset RUBRICSVC_REQUIRE_KEY")
    app = create_app(settings, db, validators=Validators(rubric=checks.validate, judge=judges.validate))
    config = uvicorn.Config(app, settings.host, settings.port, log_config=None, access_log=False, proxy_headers=False)
    config.timeout_graceful_shutdown = 5
    server = uvicorn.Server(config)
    embedded = settings.broker_url.startswith(MEMORY)
    if not embedded:
        attach(db, settings)
        log.info("this process does not score", hint="start workers with `rubricsvc worker`")
    # uvicorn raises the signal again after its shutdown, when the worker still has to stop
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    worker_failed = threading.Event()
    with ExitStack() as stack:
        args = (server, settings, db, stack, worker_failed)
        starter = threading.Thread(target=_start_worker, args=args, name="worker-starter")
        if embedded and worker:
            starter.start()
        try:
            server.run()
        finally:
            server.should_exit = True
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait
            if starter.ident is not None:
                starter.join()
    if worker_failed.is_set():
        raise typer.Exit(1)


def _start_worker(
    server: uvicorn.Server, settings: Settings, db: Database, stack: ExitStack, worker_failed: threading.Event
) -> None:
    """Start the worker once the socket is open: importing Celery would delay the first requests.

    If it fails, the service ends: it would accept jobs that are never scored.
    """
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.02)
    try:
        from workers.queue.in_process import embedded_worker

        stack.enter_context(embedded_worker(settings, db))
    except Exception:
        log.exception("the worker did not start", hint="or use --no-worker")
        worker_failed.set()
        server.should_exit = True
