"""Celery application of the workers. Run by `rubricsvc worker`, or by `celery -A workers.queue.app:app worker`."""

from __future__ import annotations

import functools
from typing import Any

from celery import Celery, signals

from rubricsvc.broker import make_celery
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store.session import Database
from workers.queue import tasks
from workers.queue.reconciler import Reconciler
from workers.queue.reporter import WorkerReporter


def make_app(settings: Settings, db: Database | None = None) -> Celery:
    """Return the Celery application with the tasks. Without ``db`` each process opens its own database."""
    app = make_celery(settings)
    tasks.register(app, settings, db)
    return app


def with_worker_threads(app: Celery, settings: Settings) -> Celery:
    """Run a reconciler and a reporter in every worker, and stop workers between two completions on request."""
    running: list[Reconciler | WorkerReporter] = []

    def ready(**_: Any) -> None:
        tasks.stopping.clear()
        db = tasks.database(settings)
        running.extend((Reconciler(db, app, settings).start(), WorkerReporter(db).start()))

    def shutting_down(**_: Any) -> None:
        tasks.stopping.set()
        while running:
            running.pop().stop()

    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(shutting_down, weak=False)
    signals.worker_process_shutdown.connect(lambda **_: tasks.close(), weak=False)  # a fork runs no atexit
    return app


@functools.cache
def _default_app() -> Celery:
    settings = get_settings()
    return with_worker_threads(make_app(settings), settings)


def __getattr__(name: str) -> Any:
    if name == "app":  # made when asked for, so that importing this module reads no settings
        return _default_app()
    raise AttributeError(name)
