"""``rubricsvc serve``: the HTTP API, and on one machine the worker beside it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import threading

    import uvicorn

    from rubricsvc.settings import Settings
    from rubricsvc.store.session import Database


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on. Beyond this machine API keys are asked for.",
            show_default="RUBRICSVC_HOST, else 127.0.0.1",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on.", show_default="RUBRICSVC_PORT, else 8321"),
    ] = None,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Score in this process too, where the broker is memory://.")
    ] = True,
) -> None:
    """Serve the HTTP API until stopped; the database is made on first use."""
    from rubricsvc import telemetry
    from rubricsvc.cli.database import open_database
    from rubricsvc.settings import get_settings

    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = get_settings().model_copy(update=given)
    telemetry.configure(settings.log_level)
    with closing(open_database(settings)) as db:
        _serve(settings, db, worker=worker)


def _serve(settings: Settings, db: Database, *, worker: bool) -> None:
    import signal
    import threading

    import structlog
    import uvicorn

    from rubricsvc.api.app import create_app
    from rubricsvc.api.auth import is_loopback, needs_key
    from rubricsvc.api.request import Validators
    from rubricsvc.broker import MEMORY, attach
    from workers import checks, judges

    log = structlog.get_logger("rubricsvc.serve")
    if not needs_key(settings) and not is_loopback(settings.host):
        log.warning("anyone who reaches this address may use the service", hint="unset RUBRICSVC_REQUIRE_KEY")
    app = create_app(settings, db, validators=Validators(rubric=checks.validate, judge=judges.validate))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
            proxy_headers=False,
        )
    )
    embedded = settings.broker_url.startswith(MEMORY)
    if not embedded:
        attach(db, settings)
        log.info("scoring is done by workers", hint="start some with `rubricsvc worker`")
    # uvicorn raises the signal again when it has shut down; by then there is still a worker to stop
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    broken = threading.Event()
    with ExitStack() as stack:
        args = (server, settings, db, stack, broken)
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
    if broken.is_set():
        raise typer.Exit(1)


def _start_worker(
    server: uvicorn.Server, settings: Settings, db: Database, stack: ExitStack, broken: threading.Event
) -> None:
    """Once the socket is open: importing Celery's worker takes longer than a first request should wait.

    Where it does not start the service ends: jobs would be taken, and never scored.
    """
    import time

    import structlog

    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.02)
    try:
        from workers.queue.in_process import embedded_worker

        stack.enter_context(embedded_worker(settings, db))
    except Exception:  # noqa: BLE001 - whatever it is, nobody else would hear of it in this thread
        structlog.get_logger("rubricsvc.serve").exception("the worker did not start", hint="or use --no-worker")
        broken.set()
        server.should_exit = True
