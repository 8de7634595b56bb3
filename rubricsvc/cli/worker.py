"""``rubricsvc worker``: a Celery worker on a real broker; start as many as there is work for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Pool(StrEnum):
    THREADS = "threads"
    PREFORK = "prefork"
    SOLO = "solo"


def worker(
    concurrency: Annotated[
        int, typer.Option(min=1, max=1000, help="Judges worked for at once, each with many calls in flight.")
    ] = 2,
    pool: Annotated[
        Pool, typer.Option(help="threads share a local model; prefork uses more cores; solo is one at a time.")
    ] = Pool.THREADS,
    queues: Annotated[str, typer.Option(help="Queues to listen to, with commas between.")] = "rubricsvc",
) -> None:
    """Score what is submitted, until stopped. Needs Redis or RabbitMQ as broker."""
    from celery.signals import setup_logging

    from rubricsvc import telemetry
    from rubricsvc.broker import MEMORY, check_broker
    from rubricsvc.errors import InvalidError
    from rubricsvc.settings import get_settings

    settings = get_settings()
    if settings.broker_url.startswith(MEMORY):
        raise InvalidError(
            "a worker of its own cannot hear memory://, which stays inside one process",
            hint="set RUBRICSVC_BROKER_URL=redis://… or amqp://…; or let `rubricsvc serve` do the scoring",
        )
    from rubricsvc.store.migrate import open_database
    from workers.queue.app import make_app, with_reconciler

    telemetry.configure(settings.log_level)
    setup_logging.connect(lambda **_: None, weak=False)  # Celery then leaves logging as it is
    open_database(settings.database_url).close()
    check_broker(settings.broker_url)
    app = with_reconciler(make_app(settings), settings)
    argv = ["worker", f"--concurrency={concurrency}", f"--pool={pool}", f"--queues={queues}"]
    app.worker_main([*argv, "--without-gossip", "--without-mingle"])
