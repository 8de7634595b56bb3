"""`rubricsvc worker`: a Celery worker on Redis or RabbitMQ."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def worker(
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Judges scored for at once.")] = 2,
    pool: Annotated[
        Literal["threads", "prefork", "solo"],
        typer.Option(help="threads share a local model; prefork uses more cores; solo is sequential."),
    ] = "threads",
) -> None:
    """Score submitted jobs until stopped. Needs Redis or RabbitMQ as broker."""
    from celery.signals import setup_logging

    from rubricsvc import telemetry
    from rubricsvc.broker import MEMORY, check_broker
    from rubricsvc.errors import InvalidError
    from rubricsvc.settings import get_settings

    settings = get_settings()
    if settings.broker_url.startswith(MEMORY):
        hint = "set RUBRICSVC_BROKER_URL=redis://… or amqp://…, or score with `rubricsvc serve`"
        raise InvalidError("the broker memory:// works within one process only", hint=hint)
    from rubricsvc.store.migrate import open_database
    from workers.queue import reconciler
    from workers.queue.app import make_app, with_worker_threads

    telemetry.configure(settings.log_level)
    setup_logging.connect(lambda **_: None, weak=False)  # keeps Celery from configuring logging
    open_database(settings.database_url).close()
    check_broker(settings.broker_url)
    app = with_worker_threads(make_app(settings), settings)
    node = f"{reconciler.NAME.replace(':', '-')}@%h"  # RabbitMQ refuses a second worker of one name
    options = [f"--hostname={node}", f"--concurrency={concurrency}", f"--pool={pool}"]
    options += ["--without-gossip", "--without-mingle"]
    app.worker_main(["worker", *options])
