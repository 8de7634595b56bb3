"""A Celery worker inside this process, on the in-memory broker: what a laptop needs, and the same code as at scale."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from celery.worker import WorkController
from celery.worker import state as worker_state

from rubricsvc.broker import MEMORY, OutboxRelay
from rubricsvc.errors import InvalidError
from rubricsvc.settings import Settings
from rubricsvc.store.session import Database
from workers.queue import app as application
from workers.queue.app import make_app
from workers.queue.reconciler import Reconciler, WorkerReporter

JUDGES_AT_ONCE = 16
"""Judges that are drained concurrently. An unused slot costs nothing; local models share one thread and take turns."""


_only_one = threading.Lock()


@contextlib.contextmanager
def embedded_worker(settings: Settings, db: Database, *, keep_models: bool = False) -> Iterator[None]:
    """Run a worker on ``db`` while the block runs; unfinished items are released at the end.

    Judges do not wait for each other. The broker is ``memory://`` whatever the settings say. Celery keeps its stop flag
    in a module, so there is at most one such worker in a process. With ``keep_models`` local models stay in memory from
    one job to the next.
    """
    if not _only_one.acquire(blocking=False):
        raise InvalidError("this process has an embedded worker already", hint="use the one that runs")
    with contextlib.ExitStack() as stack:
        stack.callback(_only_one.release)
        application.engines.keep_models = keep_models
        settings = settings.model_copy(update={"broker_url": MEMORY, "database_url": db.url})
        app = make_app(settings, db)
        app.set_default()  # a pool's thread looks its tasks up in Celery's default application
        stack.callback(setattr, db, "on_commit", None)
        db.on_commit = OutboxRelay(db, app).flush
        application.stopping.clear()
        worker_state.should_stop = worker_state.should_terminate = None
        worker = WorkController(
            app=app,
            pool="threads",
            concurrency=JUDGES_AT_ONCE,
            hostname="embedded@localhost",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            task_events=False,
        )
        thread = threading.Thread(target=worker.start, name="embedded-worker", daemon=True)
        thread.start()
        reconciler = Reconciler(db, app, settings).start()
        reporter = WorkerReporter(db).start()
        try:
            yield
        finally:
            reporter.stop()
            reconciler.stop()
            application.stopping.set()
            worker_state.should_stop = 0  # type: ignore[assignment]  # an exit status; the stub knows only None
            thread.join(30)
            application.engines.close()
