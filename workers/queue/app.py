"""The Celery  A message names a judge with work; the tables hold the work."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import threading
from typing import Any

from celery import Celery, signals
from kombu.exceptions import OperationalError as BrokerError

from rubricsvc.broker import MEMORY, attach, make_celery
from rubricsvc.settings import Settings, get_settings
from rubricsvc.store import outbox
from rubricsvc.store.migrate import open_database
from rubricsvc.store.session import Database
from workers.queue.drain import Drainer
from workers.queue.engine_pool import EnginePool
from workers.queue.reconciler import Reconciler, WorkerReporter

MAX_PASSES = 3
"""How often a message is passed on by workers that drain its judge already, to reach one that does not."""

_PASS_SECONDS = 0.1
"""Before the first pass, doubled for each further one: a worker that has just started takes no messages yet."""

stopping = multiprocessing.get_context("fork").Event()
"""Set when this worker must stop: drains finish or release what they hold. Forked children see it too."""


class SingleFlight:
    """Allows one drain of a judge at a time in a process, so that a judge that hangs keeps one slot and not all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requested_again: dict[int, bool] = {}

    def enter(self, judge_id: int) -> bool:
        """Return whether to drain; if another thread does already, it learns of this call when it leaves."""
        with self._lock:
            free = judge_id not in self._requested_again
            self._requested_again[judge_id] = not free
            return free

    def leave(self, judge_id: int) -> bool:
        """Return whether another call came since `enter`."""
        with self._lock:
            return self._requested_again.pop(judge_id)


engines = EnginePool()
"""The engines of this process. The parent of forked workers drains nothing, and so has none."""

_lock = threading.Lock()
_databases: dict[tuple[str, int], Database] = {}


def database(settings: Settings) -> Database:
    """Return this process's database. A forked worker opens its own: connections do not survive a fork."""
    name = (settings.database_url, os.getpid())
    with _lock:
        if name not in _databases:
            _databases[name] = attach(open_database(settings.database_url), settings)
        return _databases[name]


@atexit.register
def close() -> None:
    """Close what this process opened; what it inherited is its parent's."""
    engines.close()
    for name in [name for name in _databases if name[1] == os.getpid()]:
        _databases.pop(name).close()


def make_app(settings: Settings, db: Database | None = None) -> Celery:
    """Return the Celery application with the task. Without ``db`` each process opens its own database."""
    app = make_celery(settings)
    flights = SingleFlight()
    max_passes = 0 if settings.broker_url.startswith(MEMORY) else MAX_PASSES  # it has no other worker

    @app.task(name=outbox.SCORE, shared=False)
    def score(judge_id: int, passes: int = 0) -> None:
        """Score the pending items of a judge until none is left or the time is up."""
        if not flights.enter(judge_id):
            if passes < max_passes:
                stopping.wait(_PASS_SECONDS * 2**passes)
                with contextlib.suppress(BrokerError, OSError):
                    app.send_task(outbox.SCORE, [judge_id, passes + 1], retry=False, ignore_result=True)
            return
        none_left = False
        try:
            opened = db or database(settings)
            none_left = Drainer(opened, settings, stopping, engines).run(judge_id)
        finally:
            requested_again = flights.leave(judge_id)
        if (requested_again or not none_left) and not stopping.is_set():
            with opened.write() as session:
                outbox.publish(session, judge_id)

    return app


def with_worker_threads(app: Celery, settings: Settings) -> Celery:
    """Run a reconciler and a reporter in every worker, and stop workers between two completions on request."""
    running: list[Reconciler | WorkerReporter] = []

    def ready(**_: Any) -> None:
        stopping.clear()
        db = database(settings)
        running.extend((Reconciler(db, app, settings).start(), WorkerReporter(db).start()))

    def shutting_down(**_: Any) -> None:
        stopping.set()
        while running:
            running.pop().stop()

    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(shutting_down, weak=False)
    signals.worker_process_shutdown.connect(lambda **_: close(), weak=False)  # a fork runs no atexit
    return app


def __getattr__(name: str) -> Any:
    if name == "app":  # made when asked for, so that importing this module reads no settings
        settings = get_settings()
        globals()[name] = app = with_worker_threads(make_app(settings), settings)
        return app
    raise AttributeError(name)
